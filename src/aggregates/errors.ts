/** The errors of aggregates: events that cannot be folded, decisions and states that are refused. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const FoldFailed: ErrorKind<
  'fold_failed',
  { aggregate: string; stream: string; version: number; type: string; reason: string }
> = defineError(
  'fold_failed',
  d =>
    `Aggregate "${d.aggregate}" cannot fold ${d.type}, version ${d.version} of "${d.stream}": ${d.reason}. ` +
    'Its "evolve" must return the next state for every event of the stream.',
)

export const InvalidDecision: ErrorKind<'invalid_decision', { aggregate: string; stream: string; reason: string }> =
  defineError(
    'invalid_decision',
    d =>
      `The decision of aggregate "${d.aggregate}" on "${d.stream}" cannot be appended: ${d.reason}. ` +
      'Its "decide" must return an event, or a list of events.',
  )

export const InvalidAggregateState: ErrorKind<
  'invalid_aggregate_state',
  { aggregate: string; stream: string; version: number; reason: string }
> = defineError(
  'invalid_aggregate_state',
  d =>
    `Aggregate "${d.aggregate}" would be invalid at version ${d.version} of "${d.stream}": ${d.reason}. ` +
    'Nothing was appended. Decide on other events, or change its "validate".',
)

export const SnapshotRefused: ErrorKind<
  'snapshot_refused',
  { aggregate: string; stream: string; path: string; reason: string }
> = defineError(
  'snapshot_refused',
  d =>
    `The state of "${d.stream}" would not come back from a snapshot as it is: ${d.path} ${d.reason}. ` +
    `Keep the state of aggregate "${d.aggregate}" plain JSON, or give it toSnapshot and fromSnapshot.`,
)
