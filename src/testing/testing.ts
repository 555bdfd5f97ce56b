/**
 * For tests of programs that use a store: real stores that open in milliseconds, a clock and ids under the test's control,
 * and specifications of aggregates and projections. It needs no test runner and imports none.
 *
 *     await using store = await testStore(shop)
 *     await settle(store)                                       every projection has applied every event
 *
 *     specify(Order).given([placed, paid]).when({ type: 'Ship', carrier: 'Swift' }).expect([shipped])
 *
 *     await specify(charge).given([placed]).stub('charge-card', 'receipt-1').expect([paid])
 *     await store.advance({ days: 3 })                          everything that is due until then has run
 *
 *     await crashEverywhere(charge, { given: placed, effects })   killed at each point, it comes to the same end
 *
 *     test-store      a store in a schema of its own            advance   its time
 *     spare-schemas   schemas of closed test stores, emptied and used again
 *     specify         given, when, expect; specify-handler, match
 *     crash-everywhere   a workflow that is killed at each point; effects, caller-line
 *     fakes           fakeClock, countingIds
 *     settle          runs projections to the end of the log
 *
 * What can fail: an expectation (`SpecificationFailed`, with both sides), a projection that cannot reach the end of the log
 * (`NotSettled`, or its own error).
 */

export type { TimeSpan } from './advance.ts'
export { type CrashOptions, type CrashPoint, type CrashReport, crashEverywhere } from './crash-everywhere.ts'
export { type Effect, type EffectOptions, type Effects, recordEffects } from './effects.ts'
export { CrashChangesOutcome, NotSettled, SpecificationFailed } from './errors.ts'
export { countingIds, type FakeClock, fakeClock } from './fakes.ts'
export { settle } from './settle.ts'
export { type AggregateSpecification, type ProjectionSpecification, specify } from './specify.ts'
export type { HandlerSpecification } from './specify-handler.ts'
export { type TestPlace, type TestStore, testStore } from './test-store.ts'
