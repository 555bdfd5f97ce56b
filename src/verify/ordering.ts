/**
 * Writers that commit late, out of order or not at all, and readers that must get every event once and in order.
 */
import type { AnyTransaction } from '../database/transaction.ts'
import type { Store } from '../store.ts'
import type { Delivery } from './append-history.ts'
import { type Place, pause, pick, runFor, times } from './place.ts'
import { type AppendRecorder, judgeAppends, readLog, recordAppends } from './record-appends.ts'
import type { Checked } from './verify.ts'

/** One reader wants only the last of them. */
const types = ['Packed', 'Shipped']
const maxPauseMs = 6
/** Reached only by a reader that has stopped. */
const endMs = 60_000

export async function checkOrdering(place: Place, ms: number): Promise<Checked> {
  const { stores, judge } = place
  const records = stores.map((store, at) => recordAppends(store, `store ${at + 1}`))
  const readers = [follow(stores[0]!, 'a follower'), follow(stores[1]!, 'a follower of one type', [types[1]!])]
  let count = 0
  const nextStream = (): string => `parcel-${++count}`
  const workers = times(12, at => async (): Promise<void> => {
    const [store, orders] = [stores[at % 2]!, records[at % 2]!]
    if (at % 3 === 0) await orders.append(Math.random() < 0.5 ? `hot-${at % 4}` : nextStream(), someEvents())
    else if (at % 3 === 1) await inTransaction(store, orders, nextStream)
    else await inUsersTransaction(place, store, nextStream)
    await pause(2)
  })
  await runFor(ms, workers, place)
  const end = await appendEnd(judge)
  const reached = await Promise.all(readers.map(reader => reader.end(end)))
  const deliveries = readers.map(reader => reader.delivery())
  const late = readers.filter((_, at) => !reached[at]).map(({ name }) => `${name} did not get to the end of the log`)
  const problems = await judgeAppends(judge, records, { deliveries, hasOthers: true })
  return { operations: deliveries[0]!.positions.length, problems: [...problems, ...late] }
}

/**
 * All writers have ended, so whatever a reader has skipped it has passed when it gets to these events. A wrong protocol may
 * draw their positions from the middle of the log: then there are more of them.
 */
async function appendEnd(store: Store): Promise<number> {
  for (let tries = 1; ; tries++) {
    const { position } = await store.events.append(
      'end',
      types.map(type => ({ type, data: {} })),
    )
    if (tries === 100 || (await readLog(store)).at(-1)?.position === position) return position
  }
}

function someEvents(): { type: string; data: object }[] {
  return times(1 + Math.floor(Math.random() * 2), () => ({ type: pick(types), data: {} }))
}

const undone = new Error('undone')

/** One call of the history: two appends and what others do between them and the commit, or a rollback. */
async function inTransaction(store: Store, orders: AppendRecorder, nextStream: () => string): Promise<void> {
  const parts = times(2, () => ({ stream: nextStream(), expected: 'any' as const, events: 1 }))
  const work = orders.record(parts, causationId =>
    store.transaction(async tx => {
      const results = []
      for (const { stream } of parts) {
        results.push(await store.events.append(stream, { type: pick(types), data: {} }, { tx, causationId }))
        await pause(maxPauseMs)
      }
      if (Math.random() < 0.2) throw undone
      return results
    }),
  )
  await work.catch(ignoreUndone)
}

/** A transaction of the user, with a savepoint that is rolled back: it releases an announcement that was made after it. */
async function inUsersTransaction(place: Place, store: Store, nextStream: () => string): Promise<void> {
  const client = await place.client()
  const append = (tx: AnyTransaction) => store.events.append(nextStream(), someEvents(), { tx })
  try {
    await client.query('begin')
    if (Math.random() < 0.5) await append(client)
    await client.query('savepoint before_it')
    await append(client)
    await pause(maxPauseMs)
    await client.query('rollback to savepoint before_it')
    await append(client)
    await pause(maxPauseMs)
    await client.query(Math.random() < 0.8 ? 'commit' : 'rollback')
  } finally {
    client.release()
  }
}

function ignoreUndone(error: unknown): void {
  if (error !== undone) throw error
}

interface Reader {
  readonly name: string
  /** Returns whether it has got to this position. Then it reads no more. */
  end(position: number): Promise<boolean>
  delivery(): Delivery
}

function follow(store: Store, name: string, wanted?: readonly string[]): Reader {
  const stop = new AbortController()
  const positions: number[] = []
  let notice = (): void => {}
  const reading = (async () => {
    const tail = store.events.tail({
      from: 0,
      signal: stop.signal,
      ...(wanted === undefined ? {} : { types: [...wanted] }),
    })
    for await (const { position } of tail) {
      positions.push(position)
      notice()
    }
  })()
  reading.catch(() => {})
  return {
    name,
    async end(position) {
      const isThere = (): boolean => (positions.at(-1) ?? 0) >= position
      await new Promise<void>(resolve => {
        const timer = setTimeout(resolve, endMs)
        notice = () => {
          if (!isThere()) return
          clearTimeout(timer)
          resolve()
        }
        notice()
      })
      stop.abort()
      await reading.catch(() => {})
      return isThere()
    },
    delivery: () => ({ name, from: 0, cursor: positions.at(-1) ?? 0, positions, types: wanted }),
  }
}
