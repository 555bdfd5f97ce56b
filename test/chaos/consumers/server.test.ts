/** A server that stops under load, and connections that break: the runners recover by themselves. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type PostgresServer, startServer } from '../../support/postgres-server.ts'
import { long, major } from '../chaos.ts'
import { startProxy, type TroubleProxy } from '../tcp-proxy.ts'
import { holding, limitMs, openScenario } from './scenario.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startServer({ major, durable: true })
})

afterAll(() => server[Symbol.asyncDispose]())

test(
  'runners continue after the server was stopped, and after it was killed, and apply each event once',
  async () => {
    await using scenario = await openScenario({ consumers: 4, url: server.url })
    const workers = [scenario.start({ name: 'a' }), scenario.start({ name: 'b' })]
    await holding(workers, [2, 2])

    for (let round = 0; round < (long ? 20 : 1); round++) {
      await scenario.progress(20)
      await (round % 2 === 0 ? server.stop() : server.kill())
      await server.restart()
      await scenario.progress(20)
    }
    await holding(workers, [2, 2])

    expect(await scenario.finish()).toEqual([])
  },
  limitMs,
)

test(
  'runners whose connections are cut, or fall silent, apply each event once, and each gets its share again',
  async () => {
    await using scenario = await openScenario({ consumers: 4, url: server.url })
    await using proxies = await startProxies()
    const [a, b] = proxies.map(({ url }, at) => scenario.start({ name: `worker-${at}`, url, answerTimeoutMs: 5_000 }))
    await holding([a!, b!], [2, 2])

    for (let round = 0; round < (long ? 100 : 2); round++) {
      await scenario.progress(5)
      const proxy = proxies[round % 2]!
      // Commits whose answers are lost, and statements that never reach the server.
      proxy.hold(round % 4 < 2 ? 'up' : 'down')
      const links = proxy.cutClients()
      await Promise.all(links.map((link, at) => (at % 2 === 0 ? link.deliver() : link.drop())))
    }
    await holding([a!, b!], [2, 2])
    proxies[0]!.hold('up', { newLinks: true })
    proxies[0]!.hold('down', { newLinks: true })
    await holding([b!], [4])
    proxies[0]!.release()
    await holding([a!, b!], [2, 2])

    expect(await scenario.finish()).toEqual([])
  },
  limitMs,
)

async function startProxies(): Promise<readonly TroubleProxy[] & AsyncDisposable> {
  const both = [await startProxy(server.url), await startProxy(server.url)]
  const dispose = async (): Promise<void> => {
    for (const proxy of both) await proxy[Symbol.asyncDispose]()
  }
  return Object.assign(both, { [Symbol.asyncDispose]: dispose })
}
