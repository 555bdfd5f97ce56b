/**
 * The core: what every other folder stands on, and which stands on nothing but Node.
 *
 *   errors        the catalogue: every failure has a code, data, and the next thing to try
 *   clock         time and timers, so that a test can own both
 *   id            event ids that sort by time
 *   json          values to JSON text, refused with a path when the text would not hold what the value meant
 *   options       options that there are not, refused with the one that was meant
 *   name          names of streams, types and keys; the category of a stream
 *   retry         backoff, and the one loop that tries again
 *   lifecycle     abort, deadline, sleep, stop-once: what everything that waits or lives has in common
 *   schema-check  any Standard Schema, asked whether a value fits
 *   whole         options that count something, within their bounds
 *
 * Everything here is pure: no database, no files, no network, no console, no state that outlives its owner. The only
 * effect is a timer, and it comes from a `Clock` that is passed in. So all of it is tested without a database, and a
 * failure here is a programming error or bad input, never the weather.
 *
 * Guarantees the others rely on:
 * - What can be answered at once is answered at once. A function that may have to wait returns `Awaitable`, and
 *   gives a promise only when somebody below it did; a hot loop over a million events then never meets the
 *   microtask queue for nothing.
 * - Bad input is found before anything is sent, and the error names the place in the caller's own value.
 * - Waiting on a long-lived signal leaves nothing behind on it.
 *
 * Deliberately not here: logging (telemetry), anything that knows SQL, and default options of other folders.
 */
export type Awaitable<T> = T | Promise<T>

export function isPromise<T>(value: Awaitable<T> | PromiseLike<T>): value is Promise<T> {
  return typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function'
}
