/**
 * For tests of programs that use the store: time and ids in your hands, and stores that are there in milliseconds and
 * gone afterwards. No test runner is needed, and none is imported.
 *
 *     await using store = await temporaryStore({ events: shopEvents, clock: fakeClock() })
 *
 * All temporary stores of a process share one embedded engine (it takes seconds and 350 MB to start), each in a schema
 * of its own, which is dropped when the store is closed.
 */

export { countingIds } from './counting-ids.ts'
export { type FakeClock, fakeClock } from './fake-clock.ts'
export { temporaryStore } from './temporary-store.ts'
