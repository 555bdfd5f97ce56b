/**
 * The arrival of events at a join, and when it has enough of them. Decided in memory, one event after the other in the
 * order of the log, so that a join of the first three has exactly three however many come in one transaction.
 *
 *     open ──► closed      it has the events that its policy needs, or its time is over and those it has are enough
 *          ──► failed      the events that its policy needs can no longer come
 *          ──► expired     its time is over
 *          ──► cancelled   with its workflow
 *
 * It never opens again: a later event is recorded as late, and changes nothing.
 */
import type { Log } from '../../events/log.ts'
import type { JoinRoute } from '../handler.ts'
import type { BatchPlace } from '../publish.ts'
import type { EndedBranch } from './branches.ts'

export type JoinState = 'open' | 'closed' | 'failed' | 'expired' | 'cancelled'

/** Mismatch: it says another size of the batch than the join was opened with. */
export type EntryOutcome = 'arrived' | 'failed' | 'empty' | 'late' | 'mismatch'

/** One join of one batch, as far as it is looked at here. */
export interface Join {
  readonly id: string
  readonly batchId: string
  readonly correlationId: string
  readonly route: number
  readonly handler: string
  readonly definition: JoinRoute
  readonly size: number
  /** The known state of the indexes in question. */
  readonly entries: Map<number, EntryOutcome>
  /** The state of them to store. */
  readonly written: Map<number, { readonly outcome: EntryOutcome; readonly position: number | null }>
  arrived: number
  failed: number
  empty: number
  state: JoinState
  /** Of the event that closed it. */
  closedBy: number | undefined
  hasChanged: boolean
}

// [join-5]
export function arrive(log: Log, join: Join, place: BatchPlace, position: number): void {
  const known = join.entries.get(place.index)
  const about = { schema: log.schema, handler: join.handler, batchId: join.batchId, index: place.index, position }
  if (place.size !== join.size) {
    log.telemetry.log.warn(
      { ...about, size: place.size, expected: join.size },
      'An event has another size of its batch than its join has. It does not count.',
    )
    if (known === undefined) write(join, place.index, 'mismatch', position)
    return
  }
  if (known === 'arrived' || known === 'late') return
  if (join.state !== 'open') {
    log.telemetry.log.info({ ...about, state: join.state }, 'An event arrived at its join too late.')
    // A join that has run keeps its events; one that failed can still be given missing ones.
    if (known === undefined || join.state !== 'closed') write(join, place.index, 'late', position)
    return
  }
  if (known === 'failed') join.failed--
  if (known === 'empty') join.empty--
  join.arrived++
  write(join, place.index, 'arrived', position)
  closeIfDue(join, position)
}

/** A branch has ended. That changes nothing if an event of it has arrived. [join-6] */
export function endBranch(join: Join, { index, size, isFailed, position }: EndedBranch): void {
  if (join.state !== 'open' || size !== join.size) return
  const known = join.entries.get(index)
  if (known !== undefined && known !== 'mismatch') return
  if (isFailed) join.failed++
  else join.empty++
  write(join, index, isFailed ? 'failed' : 'empty', isFailed ? position : null)
  closeIfDue(join, position)
}

// [join-7]
export function closeIfDue(join: Join, position: number): void {
  if (join.state !== 'open') return
  const { definition, size, arrived, failed, empty } = join
  const missing = size - arrived - failed - empty
  const quorum = definition.policy === 'first' ? 1 : definition.quorum
  const state =
    quorum === undefined
      ? definition.policy === 'all' && failed > 0
        ? 'failed'
        : missing === 0
          ? 'closed'
          : 'open'
      : arrived >= quorum
        ? 'closed'
        : arrived + missing < quorum
          ? 'failed'
          : 'open'
  if (state === 'open') return
  join.state = state
  join.closedBy = position
}

function write(join: Join, index: number, outcome: EntryOutcome, position: number | null): void {
  join.entries.set(index, outcome)
  join.written.set(index, { outcome, position })
  join.hasChanged = true
}
