/**
 * Following the log: every event after a position, in order, none twice, none skipped, until it is stopped. Archived
 * streams are followed too: a follower that falls behind must not miss events that were archived meanwhile.
 *
 * Invariant: the cursor never passes `settled`. After a restart of the server it goes back to the last event given out,
 * and that event must still be there: positions between it and the settled head may not have been on disk yet, and are
 * then drawn again. A server that is away is waited for.
 */

import { throwIfAborted } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { refuseUnknownOptions } from '../../core/options.ts'
import type { RecordedEvent } from '../definition.ts'
import type { Log } from '../log.ts'
import { checkPosition, type EventFilter, type From, filterNames, readSettled } from '../read/log.ts'
import { rereadable } from '../read/read.ts'
import { maxShared, type SharedReads } from '../read/shared.ts'
import { type Settled, settle } from './order.ts'
import { isStillKnown, type LogWatch, rewound } from './watch.ts'

export interface TailOptions<Type extends string = string> extends EventFilter<Type> {
  /** Where to begin: 'start', 'now' for new events only, or a position for those after it. Default 'now'. */
  from?: From | undefined
  signal?: AbortSignal | undefined
}

/** Ends quietly when its signal aborts, where `tailLog` throws. */
export async function* followLog(
  log: Log,
  watch: LogWatch,
  options: TailOptions,
): AsyncGenerator<RecordedEvent, void, undefined> {
  refuseUnknownOptions('store.events.tail', options, tailOptionNames)
  try {
    yield* tailLog(log, watch, options)
  } catch (error) {
    if (!options.signal?.aborted || !isRillflowError(error, 'aborted')) throw error
  }
}

const tailOptionNames: readonly string[] = [...filterNames, 'from', 'signal']

/** From this number of events on, a page by COPY is worth its connection. */
const farBehind = 5_000

export async function* tailLog(
  log: Log,
  watch: LogWatch,
  options: TailOptions,
): AsyncGenerator<RecordedEvent, void, undefined> {
  const { from = 'now', signal, ...filter } = options
  log.database.refuseInsideTransaction('tail')
  if (from !== 'now' && from !== 'start') checkPosition('from', from)
  let seen: Settled | undefined
  if (from !== 'start') seen = await rereadable(log.database, log, () => settle(log))
  let start = from === 'now' ? seen!.settled : from === 'start' ? 0 : from
  if (seen !== undefined && seen.head < start)
    throw rewound(log, start, seen, 'its head is below the position to begin from')
  let cursor = start
  let last: RecordedEvent | undefined
  for (;;) {
    const now = await watch.beyond(cursor, seen, signal)
    try {
      if (seen !== undefined && seen.epoch !== now.epoch) {
        if (last !== undefined) await verify(log, watch, last, now)
        // The head at the time of 'now' may have been in the server's memory only.
        else if (from === 'now' && now.head < start) start = now.head
        else if (now.head < start) throw rewound(log, start, now, 'its head is below the position to begin from')
        cursor = last?.position ?? start
      }
      seen = now
      if (now.settled <= cursor) continue
      for await (const event of readNext(log, watch, { ...filter, signal }, cursor, now)) {
        last = event
        cursor = event.position
        yield event
        throwIfAborted(signal)
      }
      cursor = now.settled
    } catch (error) {
      throwIfAborted(signal)
      if (!isRillflowError(error) || !error.retryable) throw error
    }
  }
}

/** Few new events are read once for all followers of the store; many are read alone, filtered by the database. */
function readNext(
  log: Log,
  { reads }: LogWatch,
  { signal, ...filter }: EventFilter & { readonly signal: AbortSignal | undefined },
  from: number,
  { settled: to, epoch }: Settled,
): AsyncIterable<RecordedEvent> {
  if (to - from <= maxShared) return readShared(reads, filter, from, to, epoch)
  const pageSize = to - from > farBehind ? undefined : log.database.batch.readEvents
  return readSettled(log, log.database, { ...filter, from, to, includeArchived: true, pageSize, signal })
}

async function* readShared(
  reads: SharedReads,
  filter: EventFilter,
  from: number,
  to: number,
  epoch: number,
): AsyncGenerator<RecordedEvent, void, undefined> {
  // A page may end by its bytes before `to`.
  for (let after = from; after < to; ) {
    const { events, faults, reached } = await reads.page(filter, after, to, maxShared, epoch)
    for (const event of events) {
      if (faults.has(event.position) && event.isTooLarge !== true) throw faults.get(event.position)
      yield event
    }
    after = reached
  }
}

/** The server may have restarted: checks that the log is still the one that was read. */
async function verify(log: Log, { reads }: LogWatch, last: RecordedEvent, now: Settled): Promise<void> {
  const ask = (): Promise<boolean> => rereadable(log.database, log, () => isStillKnown(log, last))
  if (!(await reads.once(`${now.epoch} ${last.id}`, ask)))
    throw rewound(log, last.position, now, `event ${last.id} at ${last.position} no longer exists`)
}
