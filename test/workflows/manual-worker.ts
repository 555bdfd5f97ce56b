/** A worker that claims and completes only when the test calls it. */

import { newOwner } from '../../src/consumers/row.ts'
import type { Database } from '../../src/database/database.ts'
import type { Log } from '../../src/events/log.ts'
import { workflowHints } from '../../src/workflows/hints.ts'
import { watchSettled } from '../../src/workflows/settled.ts'
import { type Claimed, claim, drawFences } from '../../src/workflows/work/claim.ts'
import { type Completer, openCompleter } from '../../src/workflows/work/complete.ts'
import type { Outcome } from '../../src/workflows/work/outcome.ts'
import { openConsumerParts } from '../support/consumer-parts.ts'
import { enterWorker } from '../support/run-worker.ts'
import type { Shop } from '../support/shop.ts'

export interface ManualWorker {
  readonly log: Log
  readonly owner: string
  readonly completer: Completer
  claim(): Promise<Claimed[]>
}

/** `seen` wraps the database of the worker. */
export async function registerManualWorker(
  shop: Shop,
  seen: (database: Database) => Database = database => database,
): Promise<ManualWorker> {
  const { log, wake } = openConsumerParts(shop, { database: seen(shop.database) })
  const owner = newOwner(log)
  const routes = (await shop.query<{ id: number }>('select id from ~workflow_routes')).map(({ id }) => id)
  await enterWorker(log, { owner, leaseMs: 60_000, concurrency: 16, routes })
  const append = (): never => {
    throw new Error('it emits nothing')
  }
  const hints = workflowHints(wake)
  const completer = openCompleter(
    { log, hints, append, settledWatch: watchSettled(log, hints, { reached: 0 }) },
    { owner, graceMs: 60_000, lost: new AbortController().signal },
  )
  const nextFence = drawFences(log)
  const claimSome = async (): Promise<Claimed[]> =>
    claim(log, { owner, fence: await nextFence(), routes, limit: 10, ahead: 10, graceMs: 60_000 })
  return { log, owner, completer, claim: claimSome }
}

export function completedOutcome(execution: Claimed): Outcome {
  return { execution, kind: 'done', activity: 'completed', runningMs: 0, emits: [], hasSteps: false }
}
