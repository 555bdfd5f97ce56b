/** The routes that the console calls, and their answers as a client reads them. */

import type { Page } from '../../src/core/page.ts'
import type { Answer, Contract, Done, Json, ShownEvent } from '../../src/server/api/contract.ts'

export type Key = (keyof Contract & string) | keyof Coming

export type AnswerOf<K extends Key> = K extends keyof Contract & string
  ? Answer<K>
  : K extends keyof Coming
    ? Json<Coming[K]>
    : never

/** Routes of the brief that the contract does not have yet. */
interface Coming {
  'GET /events': Page<ShownEvent> & { reached?: number | undefined }
  'GET /events/at/:position': ShownEvent
  'GET /events/types': { items: { type: string }[] }
  'GET /streams/categories': { items: { category: string }[] }
  'GET /streams/:stream/events': Page<ShownEvent>
  'POST /streams/:stream/archive': Done
  'POST /streams/:stream/restore': Done
  'POST /streams/:stream/tombstone': Done
  'POST /consumers/:name/pause': Done
  'POST /consumers/:name/resume': Done
  'GET /history': { series: { name: string; points: [number, number][] }[] }
}
