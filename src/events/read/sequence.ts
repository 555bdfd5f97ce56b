/** A lazily read sequence of events: iterate it, or take all of it at once. */
import { abortError } from '../../core/abort.ts'

/** Events that are read while you iterate over them. */
export interface EventSequence<E> extends AsyncIterable<E> {
  /** Reads to the end, into memory. */
  toArray(): Promise<E[]>
  /** The first event, or undefined if there is none. */
  first(): Promise<E | undefined>
}

/** Each iteration reads anew. */
export function eventSequence<E>(read: () => AsyncIterableIterator<E>): EventSequence<E> {
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
 *
 * By hand and not as a generator: the overhead of a generator per item is half of the cost of the reading itself.
 */
export function inPages<E>(
  next: () => Promise<readonly E[] | undefined>,
  { ahead, signal }: { ahead: boolean; signal: AbortSignal | undefined },
): AsyncIterableIterator<E> {
  let page: readonly E[] = []
  let at = 0
  let ended = false
  let coming: Promise<readonly E[] | undefined> | undefined
  let turning: Promise<unknown> | undefined

  const turn = async (): Promise<void> => {
    const turned = await (coming ?? next())
    coming = undefined
    if (turned === undefined || ended) {
      ended = true
      return
    }
    page = turned
    at = 0
    if (!ahead) return
    coming = next()
    // If the consumer stops now, no one awaits it.
    coming.catch(() => {})
  }

  const following = async (): Promise<IteratorResult<E>> => {
    // A second call before the first is answered waits for the same page.
    turning ??= turn().finally(() => {
      turning = undefined
    })
    await turning
    return iterator.next()
  }

  const iterator: AsyncIterableIterator<E> = {
    next() {
      if (signal?.aborted && !ended) {
        ended = true
        return Promise.reject(abortError(signal))
      }
      if (ended) return Promise.resolve({ done: true, value: undefined })
      if (at < page.length) return Promise.resolve({ done: false, value: page[at++]! })
      return following().catch(error => {
        ended = true
        throw error
      })
    },
    return() {
      ended = true
      page = []
      return Promise.resolve({ done: true, value: undefined })
    },
    [Symbol.asyncIterator]: () => iterator,
  }
  return iterator
}
