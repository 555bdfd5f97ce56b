/**
 * Given what has happened, when this is asked for, then that happens.
 *
 *     const given = specify(Order)
 *     given([placed, paid]).when({ type: 'Ship', parcel: 'a' }).then([shipped])
 *     given([placed]).when({ type: 'Ship', parcel: 'a' }).then(/pay first/)
 *
 *     const given = specify(orderTotals)                                a projection, in a temporary store
 *     await given([{ stream: 'order-1', ...placed }], { repeat: true }).then({ 'order-1': { total: 99 } })
 *
 * What is not so throws `SpecificationFailed`, which any test runner shows.
 */
import { type Aggregate, aggregate } from '../aggregates/aggregate.ts'
import type { AnyEvent, Decider } from '../aggregates/decider.ts'
import type { DocumentProjection } from '../projections/document.ts'
import type { LiveProjection } from '../projections/live.ts'
import type { Projection } from '../projections/projection.ts'
import { type DeciderSpecification, specifyDecider } from './specify-decider.ts'
import { type ProjectionSpecification, type SpecifyOptions, specifyProjection } from './specify-projection.ts'

/** A specification of a decider, or of the aggregate it became: its validator then has a say, too. */
export function specify<State, Command, Event extends AnyEvent>(
  decider: Decider<State, Command, Event>,
): DeciderSpecification<State, Command, Event>
/** A specification of a projection by its documents. */
export function specify<Doc>(
  projection: DocumentProjection<Doc> | LiveProjection<Doc>,
  options?: SpecifyOptions,
): ProjectionSpecification<Readonly<Record<string, Doc>>>
/** A specification of any other projection by the rows of its tables. */
export function specify(
  projection: Projection,
  options?: SpecifyOptions,
): ProjectionSpecification<Readonly<Record<string, readonly object[]>>>
export function specify(subject: Decider<unknown, unknown> | Projection, options: SpecifyOptions = {}): unknown {
  if (!('decide' in subject)) return specifyProjection(subject, options)
  return specifyDecider('stream' in subject ? (subject as Aggregate) : aggregate('stream', subject))
}
