import type { Clock } from '../core/clock.ts'

/**
 * Asks once at a time, and uses an answer again for a while. Calls that come meanwhile get the same. A failure is not
 * cached.
 */
export function cached<T>(ask: () => Promise<T>, cacheMs: number, clock: Clock): () => Promise<T> {
  let asking: Promise<T> | undefined
  let known: { readonly answer: T; readonly at: number } | undefined
  return async () => {
    if (known !== undefined && clock.now().getTime() - known.at < cacheMs) return known.answer
    asking ??= ask().finally(() => {
      asking = undefined
    })
    const answer = await asking
    known = { answer, at: clock.now().getTime() }
    return answer
  }
}
