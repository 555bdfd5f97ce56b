/** The routes that the console calls, and their answers as a client reads them. */

import type { RetryRequest } from '../../src/consumers/dead-letters/retry.ts'
import type { Page } from '../../src/core/page.ts'
import type { Answer, Contract, Done, Json } from '../../src/server/api/contract.ts'
import type { Activity } from '../../src/workflows/insight/activity.ts'

export type Key = (keyof Contract & string) | keyof Coming

export type AnswerOf<K extends Key> = K extends keyof Contract & string
  ? Answer<K>
  : K extends keyof Coming
    ? Json<Coming[K]>
    : never

/** Routes of the brief that the contract does not have yet. */
interface Coming {
  'POST /dead-letters/:owner/:event/resolve': Done
  'POST /dead-letters/retry': RetryRequest
  'GET /workflows/:id/activity': Page<Activity>
  'POST /workflows/:id/signal': Done
  'POST /workflows/:id/cancel': Done
  'POST /executions/:id/resume': Done
  'POST /consumers/:name/pause': Done
  'POST /consumers/:name/resume': Done
}
