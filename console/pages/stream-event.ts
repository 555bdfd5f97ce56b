/** An event of a stream, as the thread and the state of the page have it. */
import type { AnswerOf } from '../api/routes.ts'

export type StreamEvent = AnswerOf<'GET /streams/:stream/events'>['items'][number]
