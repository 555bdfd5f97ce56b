/**
 * Records the appends of one store, or of one process.
 *
 *     const orders = recordAppends(store, 'process 1')
 *     await orders.append('order-1', event, { expected: 3 })
 *     expect(await judgeAppends(store, [orders])).toEqual([])
 *
 * It only watches: the call and its error reach the caller unchanged, and the one thing it adds is the causation id, by which
 * an event in the log names its call. A process that may be killed passes `onLine`, and keeps nothing in its memory.
 */
import { isRillflowError } from '../core/errors.ts'
import type { Transaction } from '../database/database.ts'
import type { AppendOptions } from '../events/append/append.ts'
import type { StreamEvents } from '../events/append/prepare.ts'
import type { AppendResult } from '../events/append/send.ts'
import type { NewEvent } from '../events/definition.ts'
import { logNames } from '../events/log.ts'
import type { Store } from '../store.ts'
import {
  type Answer,
  type AppendCall,
  type CallPart,
  type Delivery,
  instant,
  type LoggedEvent,
  type StreamRead,
} from './append-history.ts'
import { checkAppends } from './check-appends.ts'

export interface RecordedAppends {
  readonly calls: readonly AppendCall[]
  readonly reads: readonly StreamRead[]
}

export interface AppendRecorder extends RecordedAppends {
  append(stream: string, events: NewEvent | readonly NewEvent[], options?: AppendOptions): Promise<AppendResult>
  appendMany(parts: Parameters<Store['events']['appendMany']>[0], options?: AppendOptions): Promise<AppendResult[]>
  /** The ids of all events of a stream. */
  read(stream: string): Promise<string[]>
  /**
   * A call that appends by other means, with its name as the causation id. Its parts may be added while it runs, unless there is
   * an `onLine`.
   */
  record(
    parts: readonly CallPart[],
    run: (name: string) => Promise<AppendResult[]>,
    key?: string,
  ): Promise<AppendResult[]>
}

/**
 * `name`: different for each recorder of a history. `onLine` is called before each call and after it, with what is then
 * known of it; the recorder itself then keeps nothing.
 */
export function recordAppends(
  store: Pick<Store, 'events'>,
  name: string,
  { onLine }: { onLine?: (line: object) => void } = {},
): AppendRecorder {
  const calls: AppendCall[] = []
  const reads: StreamRead[] = []
  let count = 0
  const recorder: AppendRecorder = {
    calls,
    reads,
    async record(parts, run, key) {
      const call: AppendCall = { name: `${name} #${++count}`, parts, key, began: instant() }
      onLine?.(call)
      if (onLine === undefined) calls.push(call)
      try {
        const results = await run(call.name)
        Object.assign(call, { ended: instant(), answer: { kind: 'stored', results } satisfies Answer })
        return results
      } catch (error) {
        Object.assign(call, { ended: instant(), answer: answerOf(error) })
        throw error
      } finally {
        onLine?.({ name: call.name, ended: call.ended, answer: call.answer })
      }
    },
    async append(stream, events, options = {}) {
      const count = Array.isArray(events) ? events.length : 1
      const parts = [{ stream, expected: options.expected ?? 'any', events: count }]
      const run = async (causationId: string) => [
        await store.events.append(stream, events, { ...options, causationId }),
      ]
      return (await recorder.record(parts, run, options.idempotencyKey))[0]!
    },
    appendMany(given, options = {}) {
      const parts = (given as readonly StreamEvents[]).map(({ stream, events, expected }) => ({
        ...{ stream, expected: expected ?? ('any' as const), events: Array.isArray(events) ? events.length : 1 },
      }))
      const run = (causationId: string) => store.events.appendMany(given, { ...options, causationId })
      return recorder.record(parts, run, options.idempotencyKey)
    },
    async read(stream) {
      const began = instant()
      const eventIds = (await store.events.read(stream).toArray()).map(({ id }) => id)
      const read = { name: `${name} read ${++count}`, stream, began, ended: instant(), eventIds }
      onLine?.(read)
      if (onLine === undefined) reads.push(read)
      return eventIds
    },
  }
  return recorder
}

/** An error that is not about an unknown outcome says that nothing is stored, and nothing will be. */
function answerOf(error: unknown): Answer {
  const { code = String(error), stream, actual } = error as { code?: string; stream?: string; actual?: number }
  if (code === 'outcome_unknown') return { kind: 'unknown' }
  if (code === 'version_conflict') return { kind: 'conflict', stream: stream!, actual: actual! }
  return { kind: 'refused', code }
}

/** A store of any events, or its schema and database alone. */
export interface LogStore {
  readonly schema: { readonly name: string }
  transaction<T>(work: (tx: Pick<Transaction, 'query'>) => Promise<T>): Promise<T>
}

export interface JudgeOptions {
  readonly deliveries?: readonly Delivery[]
  /** Whether the log has events of no recorded call. Default false. */
  readonly hasOthers?: boolean
  /** Only these streams; default all. */
  readonly prefix?: string
}

/** The faults in the history of these appends, compared with the log as it is now. */
export async function judgeAppends(
  store: LogStore,
  records: readonly RecordedAppends[],
  { prefix = '', ...options }: JudgeOptions = {},
): Promise<string[]> {
  const log = (await readLog(store)).filter(({ stream }) => stream.startsWith(prefix))
  const calls = records.flatMap(record => record.calls)
  return checkAppends({ ...options, calls, reads: records.flatMap(record => record.reads), log })
}

/** By plain SQL: the judge must not depend on the readers that it judges. What is appended meanwhile may be missing. */
export async function readLog(store: LogStore): Promise<LoggedEvent[]> {
  const { events } = logNames(store.schema.name)
  const log: LoggedEvent[] = []
  // Names and types come again and again, each time as another string.
  const known = new Map<string, string>()
  const one = (text: string): string => {
    const same = known.get(text)
    if (same === undefined) known.set(text, text)
    return same ?? text
  }
  for (;;) {
    const after = log.at(-1)?.position ?? -1
    const rows = await readAgain(() =>
      store.transaction(tx =>
        tx.query<LoggedRow>(
          // By the column: by its name alone it would be by the number that is selected, which no index has.
          `select e.event_id, e.stream, e.version::float8 as version, e.position::float8 as position, e.type, e.causation_id
        from ${events.quoted} as e
        where e.position > $1::bigint
        order by e.position
        limit $2::integer`,
          [after, pageSize],
        ),
      ),
    )
    for (const { event_id: id, stream, version, position, type, causation_id: call } of rows)
      log.push({
        id,
        stream: one(stream),
        version,
        position,
        type: one(type),
        call: call === null ? undefined : one(call),
      })
    if (rows.length < pageSize) return log
  }
}

/** The last connections that were cut may be found broken only now. */
export async function readAgain<T>(read: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await read()
    } catch (error) {
      if (tries === maxTries || !isRillflowError(error, 'connection_lost')) throw error
    }
  }
}

const maxTries = 20
const pageSize = 10_000

interface LoggedRow {
  readonly event_id: string
  readonly stream: string
  readonly version: number
  readonly position: number
  readonly type: string
  readonly causation_id: string | null
}
