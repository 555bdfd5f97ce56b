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
import type { Aggregate } from '../aggregates/aggregate.ts'
import type { EventMap } from '../events/definition.ts'
import type { DocumentProjection } from '../projections/document-projection.ts'
import type { Projection } from '../projections/projection.ts'
import { type AggregateSpecification, specifyAggregate } from './specify-aggregate.ts'
import { type ProjectionSpecification, type SpecifyOptions, specifyProjection } from './specify-projection.ts'

/** A specification of an aggregate by the events it decides. */
export function specify<State, Command, M extends EventMap>(
  aggregate: Aggregate<State, Command, M>,
): AggregateSpecification<State, Command, M>
/** A specification of a projection by its documents. */
export function specify<Doc>(
  projection: DocumentProjection<Doc>,
  options?: SpecifyOptions,
): ProjectionSpecification<Readonly<Record<string, Doc>>>
/** A specification of any other projection by the rows of its tables. */
export function specify(
  projection: Projection,
  options?: SpecifyOptions,
): ProjectionSpecification<Readonly<Record<string, readonly object[]>>>
export function specify(subject: Aggregate | Projection, options: SpecifyOptions = {}): unknown {
  return 'evolve' in subject ? specifyAggregate(subject) : specifyProjection(subject, options)
}
