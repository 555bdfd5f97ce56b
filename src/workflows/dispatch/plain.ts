/**
 * Dispatching with one call, for events that need nothing but a queue; see the function in the schema. With a transaction and
 * a claim there were nine calls in a row between an append and its handler, with this there are three.
 */

import { LeaseLost } from '../../consumers/errors.ts'
import { isInterruption } from '../../consumers/run/failure.ts'
import { OutcomeUnknown } from '../../database/errors.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import { dispatcherName } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import type { Claimed } from '../work/claim.ts'
import type { DispatchParts } from './dispatch.ts'
import type { NewExecution } from './enqueue.ts'
import { byWorkflow, executionsOf, type Plan } from './routing.ts'
import { nextOffer, type Offer } from './takers.ts'

export interface PlainBatch {
  readonly plans: readonly Plan[]
  readonly version: number
  /** What was dispatched before, as far as this process knows. */
  readonly reached: number
  readonly fence: number
  /** Where the dispatcher is when these are done with. */
  readonly checkpoint: number
}

interface Dispatched {
  readonly isPaused: boolean
  /** Whether workflows may have settled with it. */
  readonly isEnd: boolean
  readonly isWork: boolean
}

/** Undefined: nothing was done, and they have to be dispatched step by step. */
export async function dispatchPlain(parts: DispatchParts, batch: PlainBatch): Promise<Dispatched | undefined> {
  const executions = batch.plans.flatMap(plan => executionsOf(plan, none))
  if (!batch.plans.every(isPlain) || !executions.every(isQueued)) return undefined
  const offer = executions.length === 0 ? undefined : await nextOffer(parts.takers)
  let begun: Claimed[] = []
  try {
    const row = await call(parts, batch, executions, offer)
    if (row.outcome === 'lost') throw new LeaseLost({ consumer: dispatcherName, fence: batch.fence })
    if (row.outcome === 'moved') throw rewound()
    if (row.outcome !== 'done') return undefined
    if (offer !== undefined && row.begun !== null)
      begun = claimedOf(row.begun, row.begun_at, batch.plans, executions, offer)
    return { isPaused: row.is_paused, isEnd: row.is_idle, isWork: row.queued > begun.length }
  } catch (error) {
    if (isInterruption(error)) throw error
    return undefined
  } finally {
    offer?.end(begun)
  }
}

const none: ReadonlySet<string> = new Set()

function isPlain({ envelope, routes, isFaulty }: Plan): boolean {
  const { batches, parent } = envelope
  return !isFaulty && batches.length === 0 && parent === undefined && routes.every(({ kind }) => kind !== 'inline')
}

function isQueued({ lane, isUnkeyed }: NewExecution): boolean {
  return lane === undefined && isUnkeyed !== true
}

interface Row {
  readonly outcome: 'done' | 'lost' | 'moved' | 'outdated' | 'involved'
  readonly is_paused: boolean
  readonly is_idle: boolean
  readonly queued: number
  readonly begun: string[] | null
  readonly begun_at: Date
}

async function call(
  { log }: DispatchParts,
  { plans, version, reached, fence, checkpoint }: PlainBatch,
  executions: readonly NewExecution[],
  offer: Offer | undefined,
): Promise<Row> {
  const flows = byWorkflow(plans)
  const [row] = await log.database.run<Row>(sql`/* workflows.dispatch */
    select outcome, is_paused, is_idle, queued, to_jsonb(begun) as begun, begun_at
    from ${workflowNames(log).workflow_dispatch}(
      p_consumer => ${dispatcherName}::text,
      p_fence => ${fence}::bigint,
      p_version => ${version}::integer,
      p_reached => ${reached}::bigint,
      p_first => ${plans[0]!.event.position}::bigint,
      p_checkpoint => ${checkpoint}::bigint,
      p_workflows => ${flows.map(({ id }) => id)}::text[],
      p_wanted => ${flows.map(({ isWanted }) => isWanted)}::boolean[],
      p_counts => ${flows.map(({ count }) => count)}::integer[],
      p_firsts => ${flows.map(({ first }) => first.position)}::bigint[],
      p_lasts => ${flows.map(({ last }) => last.position)}::bigint[],
      p_types => ${flows.map(({ last }) => last.type)}::text[],
      p_ids => ${executions.map(({ id }) => id)}::uuid[],
      p_positions => ${executions.map(({ position }) => position)}::bigint[],
      p_routes => ${executions.map(({ route }) => route)}::integer[],
      p_correlations => ${executions.map(({ correlationId }) => correlationId)}::text[],
      p_worker => ${offer?.owner ?? null}::text,
      p_worker_fence => ${offer?.fence ?? null}::bigint,
      p_worker_routes => ${offer?.routes ?? null}::integer[],
      p_limit => ${offer?.limit ?? 0}::integer,
      p_grace_ms => ${offer?.graceMs ?? 0}::integer)`)
  return row!
}

/** As a claim would have given them. */
function claimedOf(
  ids: readonly string[],
  queuedAt: Date,
  plans: readonly Plan[],
  executions: readonly NewExecution[],
  { fence }: Offer,
): Claimed[] {
  const events = new Map<number, RecordedEvent>(plans.map(({ event }) => [event.position, event]))
  const byId = new Map(executions.map(execution => [execution.id, execution]))
  const claimedAt = performance.now()
  return ids.map(id => {
    const { position, route, correlationId } = byId.get(id)!
    return {
      ...{ id, position, route, fence, correlationId, queuedAt, claimedAt },
      ...{ attempt: 1, crashes: 0, ranMs: 0 },
      ...{ lane: undefined, isHeld: false, joinId: undefined, undoId: undefined, isLetter: false, leftMs: undefined },
      beyondRankMs: undefined,
      event: events.get(position),
    }
  })
}

/** What this process remembers is not what is stored: it has to look again. */
export function rewound(): Error {
  return new OutcomeUnknown({ eventIds: [], reason: 'the server has restarted without what was dispatched last' })
}
