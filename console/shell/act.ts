/** Runs an action, and says what it did; a refusal is said in the server's words. */
import { type RequestOptions, request } from '../api/api.ts'
import { refusalOf } from '../api/reading.ts'
import type { AnswerOf, Key } from '../api/routes.ts'
import { say } from './said.tsx'

export interface ActOptions<T> extends RequestOptions {
  /** The sentence about what was done. */
  readonly done: string | ((answer: T) => string)
  readonly undo?: { readonly label: string; readonly run: () => void } | undefined
  /** Called after it, also if it was refused: the page reads again. */
  readonly after?: (() => void) | undefined
}

/** Resolves with the answer; undefined if it was refused. */
export async function act<K extends Key>(key: K, options: ActOptions<AnswerOf<K>>): Promise<AnswerOf<K> | undefined> {
  const { done, undo, after, ...rest } = options
  try {
    const { data } = await request(key, rest)
    say(typeof done === 'string' ? done : done(data), { undo })
    return data
  } catch (error) {
    const refusal = refusalOf(error)
    const isLate = refusal.status === 409
    say(isLate ? `Another operator was faster: ${refusal.message}` : refusal.message, { isBad: true })
    return undefined
  } finally {
    after?.()
  }
}
