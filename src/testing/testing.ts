/**
 * For tests of programs that use the store: time and ids in your hands, stores that are there in milliseconds and gone
 * afterwards, and specifications of deciders and projections. No test runner is needed, and none is imported.
 *
 *     await using store = await temporaryStore({ events: shopEvents, clock: fakeClock() })
 *     await settle(store)                                                 all projections have applied all events
 *
 *     const given = specify(Order)
 *     given([placed, paid]).when({ type: 'Ship', parcel: 'a' }).then([shipped])
 *
 * All temporary stores of a process share one embedded engine (it takes seconds and 350 MB to start), each in a schema
 * of its own, which is emptied or dropped when the store is closed.
 */

export { countingIds } from './counting-ids.ts'
export { NotSettled, SpecificationFailed } from './failure.ts'
export { type FakeClock, fakeClock } from './fake-clock.ts'
export { type SettleOptions, settle } from './settle.ts'
export { specify } from './specify.ts'
export type { AggregateSpecification, ExpectedError } from './specify-aggregate.ts'
export type { GivenEvent, GivenOptions, ProjectionSpecification, SpecifyOptions } from './specify-projection.ts'
export { temporaryStore } from './temporary-store.ts'
