/** The routes that the console calls, and their answers as a client reads them. */
import type { Answer } from '../../src/server/api/contract.ts'
import type { RouteKey } from '../../src/server/api/route.ts'

export type Key = RouteKey
export type AnswerOf<K extends Key> = Answer<K>
