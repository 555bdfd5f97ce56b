/** A dead letter as lists and details show it, and the name of its consumer or handler. */
import type { AnswerOf } from '../api/routes.ts'

export type DeadLetter = AnswerOf<'GET /dead-letters'>['items'][number]
export type Details = AnswerOf<'GET /dead-letters/:owner/:event'>

export function ownerOf(each: {
  readonly handler?: string | undefined
  readonly consumer?: string | undefined
}): string {
  return each.handler ?? each.consumer ?? ''
}
