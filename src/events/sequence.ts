/** A lazily read sequence of events: iterate it, or take all of it at once. */
import { throwIfAborted } from '../core/lifecycle.ts'

export interface EventSequence<E> extends AsyncIterable<E> {
  /** Reads to the end, into memory. */
  toArray(): Promise<E[]>
  /** The first event, or undefined if there is none. */
  first(): Promise<E | undefined>
}

/** Each iteration reads anew. */
export function eventSequence<E>(read: () => AsyncGenerator<E, void, undefined>): EventSequence<E> {
  return {
    [Symbol.asyncIterator]: read,
    async toArray() {
      const all: E[] = []
      for await (const event of read()) all.push(event)
      return all
    },
    async first() {
      for await (const event of read()) return event
      return undefined
    },
  }
}

/**
 * Pages, one after the other. With `ahead` the next one is asked for while the consumer is busy with this one, which
 * overlaps our work with the server's; memory is two pages. `next` returns undefined at the end.
 */
export async function* inPages<E>(
  next: () => Promise<readonly E[] | undefined>,
  { ahead, signal }: { ahead: boolean; signal: AbortSignal | undefined },
): AsyncGenerator<E, void, undefined> {
  let coming: ReturnType<typeof next> | undefined
  for (;;) {
    throwIfAborted(signal)
    const page = await (coming ?? next())
    if (page === undefined) return
    if (ahead) {
      coming = next()
      // If the consumer leaves now, nobody will look at it.
      coming.catch(() => {})
    }
    for (const item of page) {
      throwIfAborted(signal)
      yield item
    }
  }
}
