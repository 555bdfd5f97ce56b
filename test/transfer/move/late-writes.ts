/** Every kind of write to a store, each prepared before the writers are stopped and sent while they are. */
import type pg from 'pg'
import { onTestFinished } from 'vitest'
import { openPostgres } from '../../../src/database/postgres/postgres.ts'
import { defineHandler } from '../../../src/workflows/handler.ts'
import { ada, bob, type Customer } from '../../documents/customers.ts'
import { totals } from '../../projections/read-models.ts'
import { several } from '../../subscriptions/deliveries.ts'
import { freshSchema } from '../../support/engines.ts'
import { connect, paid, placed, type Shop } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { completedOutcome, type ManualWorker, registerManualWorker } from '../../workflows/manual-worker.ts'
import type { OpenMove } from './two-servers.ts'

/** Prepares, and returns the write that is sent too late. */
export type LateWrite = (opened: OpenMove) => Promise<() => Promise<unknown>>

export const writes: Record<string, LateWrite> = {
  'an append': async ({ store }) => {
    await store.events.append('order-1', placed())
    return () => store.events.append('order-1', paid)
  },
  'appends committed as a group': async ({ store }) => {
    const many = (): Promise<unknown> =>
      Promise.all(Array.from({ length: 50 }, (_, n) => store.events.append(`order-${n}`, placed(n))))
    await many()
    return many
  },
  'an append under a key, to a stream that is new': async ({ store }) => {
    await store.events.append('order-1', placed(), { idempotencyKey: 'one' })
    return () => store.events.append('order-2', placed(), { idempotencyKey: 'two' })
  },
  'a save of documents and events': async ({ store }) => {
    const customers = store.documents<Customer>('customers')
    const save = (id: string): Promise<unknown> => {
      const session = store.session()
      session.documents(customers).put(id, ada)
      session.events.append(`order-${id}`, placed())
      return session.save()
    }
    await save('ada')
    return () => save('eve')
  },
  'saves committed as a group': async ({ store }) => {
    const customers = store.documents<Customer>('customers')
    const save = (id: string): Promise<unknown> => {
      const session = store.session()
      session.documents(customers).put(id, { ...ada, email: `${id}@example.org` })
      session.events.append(`order-${id}`, placed())
      return session.save()
    }
    await Promise.all(['a', 'b', 'c'].map(save))
    return () => Promise.all(['d', 'e', 'f'].map(save))
  },
  'a document that is put': async ({ store }) => {
    const customers = store.documents<Customer>('customers')
    await customers.put('bob', bob)
    return () => customers.put('bob', { ...bob, email: 'late@example.org' })
  },
  'a document that is deleted': async ({ store }) => {
    const customers = store.documents<Customer>('customers')
    await customers.put('ada', ada)
    await customers.put('bob', bob)
    await customers.delete('ada')
    return () => customers.delete('bob')
  },
  'a projection and its checkpoint': async ({ store }) => {
    // A request for a lease waits for a quarter of it, and is repeated later: not while the others are prepared.
    await store.projections.register(totals({ leaseMs: 600_000 }))
    await store.schema.sync()
    await store.events.append('order-1', placed())
    await store.projections.runUntilIdle()
    await store.events.append('order-1', placed())
    return () => store.projections.tickOnce('order-totals')
  },
  'an acknowledgement': async ({ store }) => {
    await store.events.append('order-1', [placed(), paid, paid])
    const deliveries = store.subscribe('mailer', { ack: 'manual', leaseMs: 600_000 })[Symbol.asyncIterator]()
    const [one, two] = await several(deliveries, 2)
    await two!.ack()
    return () => one!.ack()
  },
  'an event that is published for handlers': async ({ store }) => {
    store.workflows.register(defineHandler('pack', { on: 'OrderPlaced', run: async () => {} }))
    await store.workflows.publish('OrderPlaced', { total: 1 })
    return () => store.workflows.publish('OrderPlaced', { total: 2 })
  },
  'a claim of a worker': async opened => {
    const worker = await enterLate(opened)
    await worker.claim()
    return () => worker.claim()
  },
  'the end of an execution': async opened => {
    const worker = await enterLate(opened)
    const [first, second] = await worker.claim()
    await worker.completer.complete(completedOutcome(first!))
    return () => worker.completer.complete(completedOutcome(second!))
  },
  'a stream that is archived': async ({ store }) => {
    await store.events.append('order-1', placed())
    await store.events.append('order-2', placed())
    await store.streams.archive('order-2')
    return () => store.streams.archive('order-1')
  },
  'an import': async ({ store }) => {
    const rows = (name: string) => [{ stream: name, type: 'OrderPlaced' as const, data: { total: 1 } }]
    await store.events.import(rows('order-1'), { name: 'first' })
    return () => store.events.import(rows('order-2'), { name: 'second' })
  },
  "a user's transaction that began before and had no lock": async ({ store, source }) => {
    const client = await connect(source.url)
    await client.query('begin')
    await store.events.append('order-1', placed(), { tx: client })
    await client.query('commit')
    await begin(client, 'read committed')
    return () => store.events.append('order-1', paid, { tx: client }).finally(() => end(client))
  },
  "a user's transaction that had read before": async ({ store, source, move }) => {
    const client = await connect(source.url)
    await store.events.append('order-1', placed())
    await begin(client, 'read committed')
    for (const table of ['streams', 'events']) await client.query(`select * from "${move.source.schema}"."${table}"`)
    return () => store.events.append('order-1', paid, { tx: client }).finally(() => end(client))
  },
  "a user's transaction with a snapshot from before": async ({ source, move, store }) => {
    const client = await connect(source.url)
    await store.events.append('order-1', placed())
    await begin(client, 'serializable')
    return () => client.query(`update "${move.source.schema}".streams set reason = 'late'`).finally(() => end(client))
  },
  'a prepared statement with a plan of its own': async ({ source, move, store }) => {
    const client = await connect(source.url)
    await store.events.append('order-1', placed())
    await client.query(`prepare late (text) as update "${move.source.schema}".streams set reason = $1`)
    await client.query(`set plan_cache_mode = force_generic_plan`)
    await client.query(`execute late ('early')`)
    await begin(client, 'read committed')
    return () => client.query(`execute late ('late')`).finally(() => end(client))
  },
  'a function of the schema, prepared and called before': async ({ source, move }) => {
    const client = await connect(source.url)
    await client.query(`prepare late (text) as select "${move.source.schema}".append_one(
      $1, 'any', null, false, array[gen_random_uuid()], array['OrderPlaced'], null, '[{"total": 1}]', '[null]', null, null, null)`)
    await client.query(`set plan_cache_mode = force_generic_plan`)
    for (let call = 0; call < 7; call++) await client.query(`execute late ('order-1')`)
    await begin(client, 'read committed')
    return () => client.query(`execute late ('order-1')`).finally(() => end(client))
  },
  "a user's function that names the tables": async ({ source, move, store }) => {
    const client = await connect(source.url)
    const name = `"${move.source.schema}_late"`
    await store.events.append('order-1', placed())
    await client.query(`create function pg_temp.${name}() returns void language plpgsql as $$
      begin update "${move.source.schema}".streams set reason = 'late'; end $$`)
    await client.query(`select pg_temp.${name}()`)
    await begin(client, 'read committed')
    return () => client.query(`select pg_temp.${name}()`).finally(() => end(client))
  },
  'rows that are copied in': async ({ source, move }) => {
    const late = `copy "${move.source.schema}".stream_aliases (alias, stream) from program 'echo a,b' csv`
    const client = await connect(source.url)
    await begin(client, 'read committed')
    return () => client.query(late).finally(() => end(client))
  },
}

/** A worker with more executions than it claims at once. */
async function enterLate({ store, source, move }: OpenMove): Promise<ManualWorker> {
  const flows = store.workflows
  const query = <R extends object>(text: string): Promise<R[]> => source.query<R>(move.source.schema, text)
  flows.register(defineHandler('follow', { on: 'OrderShipped', run: async () => {} }))
  flows.register(defineHandler('idle', { on: 'OrderPaid', run: async () => {} }))
  await using dispatching = flows.worker({ handlers: ['idle'] })
  await dispatching.start()
  const correlationId = freshSchema()
  const parcels = Array.from({ length: 12 }, (_, n) => `parcel-${n}`)
  await Promise.all(parcels.map(parcel => flows.publish('OrderShipped', { parcel }, { correlationId })))
  const dispatched = `select 1 from ~workflow_executions where correlation_id = '${correlationId}'`
  await waitUntil(async () => (await query(dispatched)).length === parcels.length)
  // The move has its own open transaction.
  const database = await openPostgres({ url: source.url, maxConnections: 2, transactionTimeoutMs: 600_000 })
  onTestFinished(() => database.close(1_000))
  return registerManualWorker({ ...move.source, database, store, query } as unknown as Shop)
}

/** Begins so that the server has begun as well, without a lock on any table. */
async function begin(client: pg.Client, isolation: string): Promise<void> {
  await client.query(`begin isolation level ${isolation}`)
  await client.query('select 1')
}

/** Commits the open transaction. */
async function end(client: pg.Client): Promise<void> {
  await client.query('commit')
}

/** Number of sessions that wait for a table of the schema. */
export async function waitersAt(watcher: pg.Client, schema: string): Promise<number> {
  const { rows } = await watcher.query(
    `select count(distinct locks.pid)::integer as waiters
    from pg_locks as locks
    join pg_class as c on c.oid = locks.relation
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = $1 and not locks.granted`,
    [schema],
  )
  return rows[0].waiters
}
