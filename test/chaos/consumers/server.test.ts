/** A server that goes away under load, and connections that break: the daemons come back by themselves. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type PostgresServer, startServer } from '../../support/postgres-server.ts'
import { long, major } from '../chaos.ts'
import { startProxy } from '../proxy.ts'
import { flawless } from './judge.ts'
import { holding, openScene } from './scene.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startServer({ major, durable: true })
})

afterAll(() => server[Symbol.asyncDispose]())

test('daemons go on after the server was stopped, and after it was killed, and apply each event once', async () => {
  await using scene = await openScene({ consumers: 4, url: server.url })
  const workers = [scene.start({ name: 'a' }), scene.start({ name: 'b' })]
  await holding(workers, [2, 2])

  for (let round = 0; round < (long ? 20 : 2); round++) {
    await scene.progress(20)
    await (round % 2 === 0 ? server.stop() : server.kill())
    await server.restart()
    await scene.progress(20)
  }
  await holding(workers, [2, 2])

  expect(await scene.finish()).toEqual(flawless)
}, 120_000)

test('daemons whose connections are cut, with the last word delivered or lost, apply each event once', async () => {
  await using scene = await openScene({ consumers: 4, url: server.url })
  await using proxy = await startProxy(server.url)
  const workers = ['a', 'b'].map(name => scene.start({ name, url: proxy.url }))
  await holding(workers, [2, 2])

  for (let round = 0; round < (long ? 200 : 6); round++) {
    await scene.progress(5)
    // Commits whose answers nobody gets, and statements that the server never gets.
    proxy.hold(round % 2 === 0 ? 'up' : 'down')
    const links = proxy.cutClients()
    await Promise.all(links.map((link, at) => (at % 2 === 0 ? link.deliver() : link.drop())))
  }
  await holding(workers, [2, 2])

  expect(await scene.finish()).toEqual(flawless)
}, 120_000)

test('a daemon whose connections have all fallen silent loses its share to the other, and gets it back', async () => {
  await using scene = await openScene({ consumers: 4, url: server.url })
  await using proxy = await startProxy(server.url)
  const silent = scene.start({ name: 'silent', url: proxy.url, answerTimeoutMs: 1_000 })
  const other = scene.start({ name: 'other' })
  await holding([silent, other], [2, 2])

  for (let round = 0; round < (long ? 20 : 1); round++) {
    await scene.progress(20)
    proxy.hold('up', { newLinks: true })
    proxy.hold('down', { newLinks: true })
    await holding([other], [4])
    proxy.release()
    await holding([silent, other], [2, 2])
  }

  expect(await scene.finish()).toEqual(flawless)
}, 120_000)
