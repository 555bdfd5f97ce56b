/** A worker that claims and completes only when the test calls it. */
import { newOwner } from '../../src/consumers/row.ts'
import type { Database } from '../../src/database/database.ts'
import type { DispatchParts } from '../../src/workflows/dispatch/dispatch.ts'
import { type Claimed, claim } from '../../src/workflows/work/claim.ts'
import { type Finisher, openFinisher } from '../../src/workflows/work/complete.ts'
import { drawFences } from '../../src/workflows/work/fences.ts'
import type { Outcome } from '../../src/workflows/work/outcome.ts'
import { enterWorker } from '../../src/workflows/work/rescue.ts'
import { openConsumerParts } from '../support/consumer-parts.ts'
import type { Shop } from '../support/shop.ts'

export interface ManualWorker {
  readonly log: DispatchParts['log']
  readonly owner: string
  readonly finisher: Finisher
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
  await enterWorker(log, { owner, node: undefined, leaseMs: 60_000, concurrency: 16, routes })
  const parts = { log, wake } as unknown as DispatchParts
  const finisher = openFinisher(parts, { owner, graceMs: 60_000, lost: new AbortController().signal })
  const nextFence = drawFences(log)
  const claimSome = async (): Promise<Claimed[]> =>
    claim(log, { owner, fence: await nextFence(), routes, limit: 10, ahead: 10, graceMs: 60_000 })
  return { log, owner, finisher, claim: claimSome }
}

export function completedOutcome(execution: Claimed): Outcome {
  return { execution, kind: 'done', told: 'completed', runningMs: 0, emits: [], hasSteps: false }
}
