/** The errors of aggregates: events that cannot be folded, decisions and states that are refused. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const FoldFailed: ErrorKind<
  'fold_failed',
  { aggregate: string; stream: string; version: number; type: string; reason: string }
> = defineError('fold_failed', d =>
  `Aggregate "${d.aggregate}" cannot fold ${d.type}, version ${d.version} of "${d.stream}": ${d.reason}. Mend its evolve,
which must return the next state for every event of the stream.`.replace('\n', ' '),
)
export const InvalidDecision: ErrorKind<'invalid_decision', { aggregate: string; stream: string; reason: string }> =
  defineError(
    'invalid_decision',
    d => `Aggregate "${d.aggregate}" decided on "${d.stream}" what cannot be appended: ${d.reason}. Mend its decide.`,
  )
export const InvalidAggregateState: ErrorKind<
  'invalid_aggregate_state',
  { aggregate: string; stream: string; version: number; reason: string }
> = defineError('invalid_aggregate_state', d =>
  `Aggregate "${d.aggregate}" would be invalid at version ${d.version} of "${d.stream}": ${d.reason}. Nothing was
appended; decide otherwise, or mend its validate.`.replace('\n', ' '),
)
export const SnapshotRefused: ErrorKind<
  'snapshot_refused',
  { aggregate: string; stream: string; path: string; reason: string }
> = defineError('snapshot_refused', d =>
  `The state of "${d.stream}" would not come back from a snapshot as it is: ${d.path} ${d.reason}. Keep to plain JSON in
the state of aggregate "${d.aggregate}", or give it toSnapshot and fromSnapshot.`.replace('\n', ' '),
)
