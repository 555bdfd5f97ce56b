/** A database that is unavailable while handlers run. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deferred } from '../../../src/core/abort.ts'
import { openStore } from '../../../src/store.ts'
import { judgeAppends } from '../../../src/verify/record-appends.ts'
import { complete } from '../../../src/workflows/emit.ts'
import { defineHandler } from '../../../src/workflows/handler.ts'
import { freshSchema } from '../../support/engines.ts'
import { type PostgresServer, startServer } from '../../support/postgres-server.ts'
import { workerOf } from '../../support/run-worker.ts'
import { waitUntil } from '../../support/wait.ts'
import { long, major } from '../chaos.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startServer({ major, durable: true })
})

afterAll(() => server[Symbol.asyncDispose]())

test.each(['stopped', 'killed'] as const)(
  'SB-39: outcomes of handlers that ended while the server was %s are stored when it is back, and no handler runs again',
  async how => {
    const schema = freshSchema()
    await using store = await openStore({ url: server.url, schema, migrate: true })
    await store.transaction(tx => tx.query(`create table "${schema}".receipts (handler text)`))
    const flows = store.workflows
    const runs: string[] = []
    let goOn = deferred<void>()
    const handler = async (name: string): Promise<void> => {
      runs.push(name)
      await goOn.promise
    }
    flows.register(defineHandler('plain', { on: 'OrderPlaced', run: () => handler('plain') }))
    flows.register(defineHandler('ordered', { on: 'OrderPlaced', ordered: true, run: () => handler('ordered') }))
    flows.register(
      defineHandler('emitting', {
        on: 'OrderPlaced',
        run: async (_, { emit }) => {
          await handler('emitting')
          return emit('OrderPaid', {})
        },
      }),
    )
    flows.register(
      defineHandler('writing', {
        on: 'OrderPlaced',
        run: async () => {
          await handler('writing')
          return complete(tx => tx.query(`insert into "${schema}".receipts values ('writing')`))
        },
      }),
    )
    flows.register(
      defineHandler('stepping', {
        on: 'OrderPlaced',
        run: async (_event, ctx) => {
          await ctx.step('charge', () => handler('stepping'))
          return ctx.emit('OrderShipped', {})
        },
      }),
    )
    const names = ['emitting', 'ordered', 'plain', 'stepping', 'writing']
    await using worker = workerOf(store, { leaseMs: 60_000 })
    await worker.start()

    for (let round = 0; round < (long ? 10 : 1); round++) {
      runs.length = 0
      const flow = await flows.publish('OrderPlaced', { round })
      await waitUntil(() => runs.length === names.length, { what: 'all handlers at work' })
      // Claims are not flushed by themselves: a later commit takes them to the disk.
      await store.events.append('bell', { type: 'BellRung', data: {} })
      await (how === 'stopped' ? server.stop() : server.kill())
      goOn.resolve()
      await new Promise(resolve => setImmediate(resolve))
      await server.restart()
      const status = await flow.waitUntilSettled({ timeoutMs: 60_000 })
      goOn = deferred()

      expect(runs.sort()).toEqual(names)
      expect(status).toMatchObject({ state: 'settled', deadLetters: 0 })
      const receipts = await store.transaction(tx => tx.query(`select 1 from "${schema}".receipts`))
      expect(receipts).toHaveLength(round + 1)
      const emitted = (await store.events.readAll({ correlationId: flow.correlationId }).toArray()).map(e => e.type)
      expect(emitted.sort()).toEqual(['OrderPaid', 'OrderPlaced', 'OrderShipped'])
    }
    expect(await judgeAppends(store, [], { hasOthers: true })).toEqual([])
  },
  long ? 600_000 : 180_000,
)
