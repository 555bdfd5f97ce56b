/** A worker that does only what it is told. */
import { newOwner } from '../../src/consumers/lease.ts'
import type { Database } from '../../src/database/database.ts'
import type { Log } from '../../src/events/log.ts'
import { workflowHints } from '../../src/workflows/hints.ts'
import { type Claimed, claim, drawFences } from '../../src/workflows/work/claim.ts'
import { type Completer, openCompleter } from '../../src/workflows/work/complete.ts'
import type { Outcome } from '../../src/workflows/work/outcome.ts'
import { enterWorker } from '../../src/workflows/work/rescue.ts'
import { workbench } from '../support/consumers.ts'
import type { Shop } from '../support/shop.ts'

export interface Ghost {
  readonly log: Log
  readonly owner: string
  readonly completer: Completer
  claim(): Promise<Claimed[]>
}

/** `seen` is the database as it sees it. */
export async function enter(shop: Shop, seen: (database: Database) => Database = database => database): Promise<Ghost> {
  const { log, wake } = workbench(shop, { database: seen(shop.database) })
  const owner = newOwner(log)
  const routes = (await shop.query<{ id: number }>('select id from ~workflow_routes')).map(({ id }) => id)
  await enterWorker(log, { owner, node: undefined, leaseMs: 60_000, concurrency: 16, routes })
  const append = (): never => {
    throw new Error('it emits nothing')
  }
  const completer = openCompleter(
    { log, hints: workflowHints(wake), append },
    { owner, graceMs: 60_000, lost: new AbortController().signal },
  )
  const nextFence = drawFences(log)
  const claimSome = async (): Promise<Claimed[]> =>
    claim(log, { owner, fence: await nextFence(), routes, limit: 10, ahead: 10, graceMs: 60_000 })
  return { log, owner, completer, claim: claimSome }
}

export function doneOf(execution: Claimed): Outcome {
  return { execution, kind: 'done', activity: 'completed', runningMs: 0, emits: [], hasSteps: false }
}
