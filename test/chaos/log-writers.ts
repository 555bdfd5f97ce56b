/**
 * Writers for the ordering torture: every way in which a transaction can append, slowly, and ways of announcing that look
 * equal and let readers skip events.
 *
 *     announce ── pause ── draw ── pause ── insert ── pause ── commit, or not
 */
import type pg from 'pg'
import type { AnyTransaction } from '../../src/database/transaction.ts'
import type { Documents } from '../../src/documents/documents.ts'
import type { AppendResult } from '../../src/events/append/send.ts'
import type { Store } from '../../src/store.ts'
import type { CallPart } from '../../src/verify/append-history.ts'
import type { AppendRecorder } from '../../src/verify/record-appends.ts'
import { pause, pick, type Random } from './seeded-random.ts'

export interface Writer {
  readonly client: pg.Client
  readonly store: Store
  /** The recorder of the appends of this store. */
  readonly orders: AppendRecorder
  readonly schema: string
  readonly random: Random
  /** Different for each writer. */
  readonly name: string
  count: number
}

/** One transaction, or several; it may fail as transactions do. */
export type Work = (writer: Writer) => Promise<void>

export const types = ['Packed', 'Shipped'] as const
const maxPauseMs = 4

// ── Correct ──────────────────────────────────────────────────────────────────────────────────────────────────

/** The protocol by hand, statement by statement. */
export const slowSteps: Work = async writer => {
  await begin(writer)
  await announce(writer)
  for (let draws = drawsOf(writer); draws > 0; draws--) await drawAndInsert(writer)
  await end(writer)
}

/** The same with the schema's own way of drawing, and with a savepoint that gives a position back. */
export const drawnSlowly: Work = async writer => {
  const { client, schema, random } = writer
  const drawOne = async (): Promise<string> => {
    const { rows } = await client.query(`select ("${schema}".draw(1))[1] as position`)
    await pause(random, maxPauseMs)
    return rows[0].position
  }
  await begin(writer)
  if (random() < 0.5) {
    await client.query('savepoint early')
    await insert(writer, await drawOne())
    await client.query('rollback to savepoint early')
  }
  for (let draws = drawsOf(writer); draws > 0; draws--) await insert(writer, await drawOne())
  await end(writer)
}

/** One call of the store, grouped with others. */
export const grouped: Work = async writer => {
  const stream = writer.random() < 0.5 ? `hot-${Math.floor(writer.random() * 5)}` : nextStream(writer)
  await writer.orders.append(stream, eventsOf(writer))
  await pause(writer.random, maxPauseMs)
}

/** Documents and events of a session, grouped with those of others. */
export const saved: Work = async writer => {
  const [stream, events] = [nextStream(writer), eventsOf(writer)]
  await writer.orders.record([{ stream, expected: 'any', events: events.length }], async causationId => {
    const session = writer.store.session({ causationId })
    session.documents(parcelsOf(writer.store)).insert(nextStream(writer), { weight: 1 })
    session.events.append(stream, events)
    return [...(await session.save()).streams]
  })
  await pause(writer.random, maxPauseMs)
}

/** The collection that saves write to. */
export function parcelsOf(store: Store): Documents<{ weight: number }> {
  return store.documents('parcels', { gin: false })
}

/** Appends of the store inside a transaction of the user: one call of the history, stored with its commit. */
export const insideUsersTransaction: Work = async writer => {
  const work = recordTransaction(writer, async append => {
    await begin(writer)
    for (let appends = drawsOf(writer); appends > 0; appends--) {
      await append(writer.client)
      await pause(writer.random, maxPauseMs)
    }
    if (!(await end(writer))) throw abandoned
  })
  await work.catch(expectOnly(abandoned))
}

/** An announcement inside a savepoint is rolled back with it, and must be repeated. */
export const savepointRolledBack: Work = async writer => {
  const { client, store } = writer
  await begin(writer)
  if (writer.random() < 0.5) await store.events.append(nextStream(writer), eventsOf(writer), { tx: client })
  await client.query('savepoint before_it')
  await store.events.append(nextStream(writer), eventsOf(writer), { tx: client })
  await pause(writer.random, maxPauseMs)
  await client.query('rollback to savepoint before_it')
  await pause(writer.random, maxPauseMs)
  await store.events.append(nextStream(writer), eventsOf(writer), { tx: client })
  await pause(writer.random, maxPauseMs)
  await end(writer)
}

/** The same with an exception block in the database. */
export const exceptionBlock: Work = async writer => {
  await begin(writer)
  await writer.client.query(`select "${writer.schema}".append_after_failure($1, $2)`, [
    nextStream(writer),
    nextStream(writer),
  ])
  await pause(writer.random, 2 * maxPauseMs)
  await end(writer)
}

/** Between its two phases it has no session, only locks. */
export const prepared: Work = async writer => {
  const { client, random } = writer
  const gid = `${writer.schema} ${writer.name} ${++writer.count}`
  await begin(writer)
  await client.query(`select "${writer.schema}".append_raw($1)`, [nextStream(writer)])
  await pause(random, maxPauseMs)
  await client.query(`prepare transaction '${gid}'`)
  await pause(random, 2 * maxPauseMs)
  await client.query(`${random() < 0.8 ? 'commit' : 'rollback'} prepared '${gid}'`)
}

/** The store's own transactions, their savepoints and their rollbacks: the only kind that the embedded engine has. */
export const insideStoresTransaction: Work = async writer => {
  const { store, random } = writer
  const work = recordTransaction(writer, append =>
    store.transaction(async tx => {
      await append(tx)
      const isUndone = random() < 0.5
      await tx
        .savepoint(async () => {
          if (isUndone) await store.events.append(nextStream(writer), eventsOf(writer), { tx })
          else await append(tx)
          if (isUndone) throw abandoned
        })
        .catch(expectOnly(abandoned))
      await append(tx)
      if (random() < 0.2) throw abandoned
    }),
  )
  await work.catch(expectOnly(abandoned))
}

const abandoned = new Error('abandoned')

/** Records the appends of a transaction as one call. `work` rejects if it is rolled back. */
async function recordTransaction(
  writer: Writer,
  work: (append: (tx: AnyTransaction) => Promise<void>) => Promise<void>,
): Promise<void> {
  const parts: CallPart[] = []
  await writer.orders.record(parts, async causationId => {
    const results: AppendResult[] = []
    await work(async tx => {
      const [stream, events] = [nextStream(writer), eventsOf(writer)]
      parts.push({ stream, expected: 'any', events: events.length })
      results.push(await writer.store.events.append(stream, events, { tx, causationId }))
    })
    return results
  })
}

// ── Broken ───────────────────────────────────────────────────────────────────────────────────────────────────

/** The client remembers its announcement; the rollback to a savepoint has released the lock, but not the memory. */
export const rememberedInClient: Work = async writer => {
  const { client } = writer
  await begin(writer)
  await client.query('savepoint before_it')
  await announce(writer)
  await drawAndInsert(writer)
  await client.query('rollback to savepoint before_it')
  await drawAndInsert(writer)
  await end(writer)
}

const connectionsAnnounced = new WeakSet<pg.Client>()

/** Announced by the first transaction of the connection, whose end releases the lock. */
export const oncePerConnection: Work = async writer => {
  await begin(writer)
  if (!connectionsAnnounced.has(writer.client)) await announce(writer)
  connectionsAnnounced.add(writer.client)
  await drawAndInsert(writer)
  await end(writer)
}

/** The bound is then the drawn position, and too late. */
export const afterDrawing: Work = async writer => {
  await begin(writer)
  const position = await draw(writer)
  await pause(writer.random, maxPauseMs)
  await announce(writer)
  await insert(writer, position)
  await end(writer)
}

/** Its lock is released with its transaction. */
export const inTransactionOfItsOwn: Work = async writer => {
  await announce(writer)
  await begin(writer)
  await drawAndInsert(writer)
  await end(writer)
}

/** The order in which the parts of a statement run is undefined. */
export const inSameStatement: Work = async writer => {
  await begin(writer)
  await writer.client.query(
    `with inserted as (
       insert into "${writer.schema}".events (${columns})
       select nextval('"${writer.schema}".events_position'), ${values}
       returning position
     ),
     announced as (select "${writer.schema}".announce())
     select position, announced from inserted, announced`,
    [nextStream(writer), pick(writer.random, types)],
  )
  await pause(writer.random, maxPauseMs)
  await end(writer)
}

// ── Parts ────────────────────────────────────────────────────────────────────────────────────────────────────

/** Functions of the writers above. */
export function writerFunctions(schema: string): string[] {
  return [
    `create function "${schema}".append_raw(p_stream text) returns void language plpgsql as $$
     begin
       perform "${schema}".announce();
       insert into "${schema}".events (${columns})
       select nextval('"${schema}".events_position'), 1, now(), gen_random_uuid(), 1, p_stream, 'Shipped', 'torture', '{}';
     end $$`,
    `create function "${schema}".append_after_failure(p_first text, p_second text) returns void language plpgsql as $$
     begin
       begin
         perform "${schema}".append_raw(p_first);
         perform pg_sleep(0.002);
         raise exception 'undone';
       exception when raise_exception then
         perform pg_sleep(0.002);
       end;
       perform "${schema}".append_raw(p_second);
     end $$`,
  ]
}

const columns = 'position, version, created_at, event_id, schema_version, stream, type, correlation_id, data'
const values = `1, now(), gen_random_uuid(), 1, $1, $2, 'torture', '{}'`

async function begin({ client, random }: Writer): Promise<void> {
  const level = random() < 0.7 ? 'read committed' : pick(random, ['repeatable read', 'serializable'])
  await client.query(`begin isolation level ${level}`)
}

/** Returns whether it was committed. */
async function end({ client, random }: Writer): Promise<boolean> {
  await pause(random, 2 * maxPauseMs)
  const isCommitted = random() < 0.85
  await client.query(isCommitted ? 'commit' : 'rollback')
  return isCommitted
}

async function announce({ client, schema, random }: Writer): Promise<void> {
  await client.query(`select "${schema}".announce()`)
  await pause(random, maxPauseMs)
}

async function draw({ client, schema }: Writer): Promise<string> {
  return (await client.query(`select nextval('"${schema}".events_position') as position`)).rows[0].position
}

async function insert(writer: Writer, position: string): Promise<void> {
  const text = `insert into "${writer.schema}".events (${columns}) values (${position}, ${values})`
  await writer.client.query(text, [nextStream(writer), pick(writer.random, types)])
  await pause(writer.random, maxPauseMs)
}

async function drawAndInsert(writer: Writer): Promise<void> {
  const position = await draw(writer)
  await pause(writer.random, maxPauseMs)
  await insert(writer, position)
}

function drawsOf({ random }: Writer): number {
  return 1 + Math.floor(random() * 3)
}

function nextStream(writer: Writer): string {
  return `${writer.name}-${++writer.count}`
}

function eventsOf({ random }: Writer): { type: string; data: object }[] {
  return Array.from({ length: 1 + Math.floor(random() * 2) }, () => ({ type: pick(random, types), data: {} }))
}

function expectOnly(expected: Error): (error: unknown) => void {
  return error => {
    if (error !== expected) throw error
  }
}
