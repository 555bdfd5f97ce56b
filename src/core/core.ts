/**
 * The core: the code that every other folder uses. It uses nothing but Node.
 *
 *   errors         how an error is defined: code, data, and a message with the next thing to try
 *   options        options of users: unknown names, numbers out of bounds
 *   name           names of streams, types and keys; the category of a stream; the name that was probably meant
 *   definition     the part that all definitions share: a kind and a name
 *   page           the shape of every list: items, and the text that leads to the next page
 *   id             ids that sort by time: new ones, and ids derived from the content they identify
 *   printable      text for terminals, without characters that a terminal obeys
 *   json           values to JSON text, refused with a path if the text would not read back as the value
 *   as-json        the type of a value that was stored as JSON and read back
 *   schema-check   any Standard Schema, asked whether a value fits
 *   host           time, timers, chance and turns of the event loop, which a simulation can replace
 *   clock          time and timers, so that a test can own both
 *   abort          signals, deadlines, sleep, promises settled later, stopping once
 *   wait           the one way in which every `waitFor…` of the store waits
 *   retry          backoff, and the one loop that tries again
 *
 *   loop           looks for work when there may be some      ┐
 *   coalesce       sends waiting items together               ├ the three kernels of everything that runs by itself
 *   service        starts, stops twice, is disposed           ┘
 *
 * Everything here is pure: no database, no files, no network, no console, no state that outlives its owner. The only
 * effect is a timer, and it comes from a `Clock` that is passed in. So all of it is tested without a database, and a
 * failure here is a programming error or bad input.
 *
 * Guarantees that the others rely on:
 * - A function that may have to wait returns `Awaitable`: a value if it is known at once, a promise only if something
 *   below it gave one. A loop over a million events then does not wait for the microtask queue.
 * - Bad input is found before anything is sent, and the error has the path in the caller's own value.
 * - Waiting on a long-lived signal leaves nothing behind on it.
 *
 * Deliberately not here: logging (telemetry), anything that knows SQL, and default options of other folders.
 */
export type Awaitable<T> = T | Promise<T>

export function isPromise<T>(value: Awaitable<T> | PromiseLike<T>): value is Promise<T> {
  return typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function'
}

/** Counts in sentences: `1 attempt`, `3 attempts`; `1 execution waits`, `3 executions wait`. */
export function counted(number: number, one: string, many: string = `${one}s`): string {
  return `${number} ${Number(number) === 1 ? one : many}`
}
