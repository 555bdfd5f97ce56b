/**
 * The dispatcher: an ordinary consumer of the log that turns events into executions, in the transaction of its checkpoint.
 *
 *     [events] ─► routes, as stored ─► workflows locked, sorted ─► inline handlers, each in a savepoint
 *                                          └─► waits answered, joins counted, executions queued ─► checkpoint
 *
 * Events that need nothing but a queue take a shorter way to the same end: `dispatch-plain.ts`.
 *
 * It never waits for users' code: an inline handler that fails, or takes too long, becomes an execution like any other. It
 * has no dead letters either; what it cannot do now it tries again, since an event passed over would be work lost.
 */

import { type BatchContext, type Consumer, consumer } from '../../consumers/consumer.ts'
import { isInterruption } from '../../consumers/run/failure.ts'
import { custom } from '../../consumers/run/policy.ts'
import { consumerNames } from '../../consumers/schema.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { AppendParts } from '../../events/append/append.ts'
import { appendIn } from '../../events/append/append.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import type { EmitLimits } from '../emitted.ts'
import type { Handler } from '../handler.ts'
import { moveBatches } from '../joins/joins.ts'
import { dispatchMoves } from '../joins/moves.ts'
import { dispatcherName, loadRoutes, type Route } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { answerWaits } from '../steps/waits.ts'
import { enqueue } from './enqueue.ts'
import { type InlineRun, runInline, tellInline } from './inline.ts'
import { dispatchPlain, rewound } from './plain.ts'
import { byWorkflow, executionsOf, type Plan, planOf } from './routing.ts'
import type { Taker } from './takers.ts'

export interface DispatchParts extends AppendParts {
  readonly limits: EmitLimits
  /** The code of a handler, if this process has it. */
  codeOf(handler: string, version: number): Handler | undefined
  /** How far this process has dispatched, as long as nobody else does; 0n: it does not know. */
  readonly progress: { reached: number }
  /** The workers of this process that take work as it is dispatched. */
  readonly takers: Set<Taker>
}

/** Counters of what is dispatched, whoever does it: one at a time. */
const owner = 'dispatcher'

export function dispatcher(parts: DispatchParts): Consumer {
  const { log, wake, progress } = parts
  let known: { readonly version: number; readonly routes: readonly Route[] } | undefined
  return consumer(
    {
      name: dispatcherName,
      kind: 'dispatcher',
      filter: {},
      takesFaults: true,
      async handle(events, ctx) {
        const { checkpoint, version } = await lockUnflushed(log, ctx.tx)
        if (checkpoint < progress.reached) {
          progress.reached = 0
          throw rewound()
        }
        if (known === undefined || known.version !== version) known = { version, routes: await loadRoutes(log, ctx.tx) }
        const { isWork, isTouched } = await dispatch(parts, events, known.routes, ctx)
        ctx.tx.afterCommit(() => {
          progress.reached = events.at(-1)!.position
        })
        if (isWork) ctx.tx.afterCommit(() => wake.worked())
        if (isTouched) ctx.tx.afterCommit(() => wake.ended())
      },
      async handleAtOnce(events, { fence, checkpoint, faults }) {
        if (known === undefined) return undefined
        const { routes, version } = known
        const plans = events.map(event => planOf(event, routes, faults.has(event.position)))
        const { reached } = progress
        // After whatever goes wrong it is the stored checkpoint that counts.
        progress.reached = 0
        const done = await dispatchPlain(parts, { plans, version, reached, fence, checkpoint })
        progress.reached = done === undefined ? reached : checkpoint
        if (done === undefined) return undefined
        if (done.isWork) wake.worked()
        else if (!done.isEnd) wake.begun()
        if (done.isEnd) wake.ended()
        return done
      },
    },
    { policy: custom(() => 'retry', { baseMs: 50, maxMs: 5_000 }), startFrom: 'now' },
  )
}

/**
 * Not flushed to the disk: that would take longer than the dispatch, and nothing is lost without. Executions and checkpoint
 * are taken back together, and made again with the same ids; whatever is built on them is flushed, and they with it; what
 * this process remembers is held against the stored checkpoint. But with inline handlers it is: what they emit is in the
 * log, and what is read there is on the disk. (One caller, publish to settled, dispatch and claim flushed: 57 a second, a
 * handler begins after 11.6 ms; without: 71, and 9.3 ms.)
 */
async function lockUnflushed(log: Log, tx: Executor): Promise<{ checkpoint: number; version: number }> {
  const [row] = await tx.run<{ checkpoint: number; version: number }>(sql`/* workflows.lock_unflushed */
    select checkpoint, coalesce((definition->>'routes')::integer, 0) as version,
      set_config('synchronous_commit', case
        when exists (
          select
          from ${workflowNames(log).workflow_routes} as r
          where r.kind = 'inline')
        then current_setting('synchronous_commit')
        else 'off'
      end, true)
    from ${consumerNames(log).consumers}
    where name = ${dispatcherName}::text
    for update`)
  return row!
}

/**
 * Tells whether there is work because of it, and whether some of the events belong to workflows at all. `isRepeated`: they
 * were dispatched before, to other handlers.
 */
export async function dispatch(
  parts: DispatchParts,
  events: readonly RecordedEvent[],
  routes: readonly Route[],
  { tx, signal, faults }: Pick<BatchContext, 'tx' | 'signal' | 'faults'>,
  isRepeated = false,
): Promise<Dispatched> {
  const plans = events.map(event => planOf(event, routes, faults?.has(event.position) ?? false))
  if (!plans.some(plan => plan.routes.some(({ kind }) => kind === 'inline')))
    return dispatchPlans(parts, plans, routes, tx, signal, false, isRepeated)
  try {
    return await tx.savepoint(() => dispatchPlans(parts, plans, routes, tx, signal, true, isRepeated))
  } catch (error) {
    if (isInterruption(error) || signal.aborted) throw error
    // What inline handlers emitted was refused: they are run again one by one, each with an outcome of its own.
    return dispatchPlans(parts, plans, routes, tx, signal, false, isRepeated)
  }
}

async function dispatchPlans(
  parts: DispatchParts,
  given: readonly Plan[],
  routes: readonly Route[],
  tx: Transaction,
  signal: AbortSignal,
  withInline: boolean,
  isRepeated: boolean,
): Promise<Dispatched> {
  const { log } = parts
  const { states, made } = await admit(parts, tx, given)
  const plans = given.map(plan => (isOpen(states, plan) ? plan : { ...plan, routes: [] }))
  const known = plans.filter(plan => states.has(plan.event.correlationId))
  const open = known.filter(plan => isOpen(states, plan))
  const older = known.filter(plan => !made.has(plan.event.correlationId))
  const woken = await answerWaits(log, tx, older)
  const inline = await runInline(parts, tx, plans, signal, withInline)
  const executions = plans.flatMap(plan => executionsOf(plan, inline.done))
  // What was in the log before is not under way again.
  const repeated = new Set<InlineRun>()
  for (const run of inline.runs)
    if (run.emitted?.append !== undefined) {
      const results = await appendIn(parts, run.emitted.append, tx)
      if (results.some(each => each.repeated)) repeated.add(run)
    }
  const runs = inline.runs.map(run => (repeated.has(run) ? { ...run, emitted: undefined } : run))
  const moves = dispatchMoves(open, executions, runs, isRepeated)
  const { joined, isTimed } = await moveBatches(log, tx, owner, () => routes, moves)
  const enqueued = await enqueue(log, tx, owner, [...executions, ...joined])
  await tellInline(log, tx, inline.runs)
  return { isWork: isTimed || woken + enqueued > 0, isTouched: known.length > 0 }
}

interface Dispatched {
  readonly isWork: boolean
  readonly isTouched: boolean
}

function isOpen(states: ReadonlyMap<string, string>, { event }: Plan): boolean {
  return (states.get(event.correlationId) ?? 'active') === 'active'
}

/**
 * Locks the workflows of these events, in the order of everybody, and makes rows for new ones; returns their states.
 * One without handlers has no row: an event nobody wants costs a look at an index.
 */
async function admit(
  { log }: DispatchParts,
  tx: Transaction,
  plans: readonly Plan[],
): Promise<{ states: ReadonlyMap<string, string>; made: ReadonlySet<string> }> {
  const flows = byWorkflow(plans)
  const parents = flows.map(({ parent }) => parent ?? null)
  const rows = await tx.runArrays(sql`/* workflows.admit */
    select correlation_id, state, is_new
    from ${workflowNames(log).workflow_admit}(
      p_owner => ${owner}::text,
      p_ids => ${flows.map(({ id }) => id)}::text[],
      p_wanted => ${flows.map(({ isWanted }) => isWanted)}::boolean[],
      p_counts => ${flows.map(({ count }) => count)}::integer[],
      p_firsts => ${flows.map(({ first }) => first.position)}::bigint[],
      p_lasts => ${flows.map(({ last }) => last.position)}::bigint[],
      p_types => ${flows.map(({ last }) => last.type)}::text[],
      p_parents => ${parents.some(parent => parent !== null) ? parents : null}::text[])`)
  const found = rows as [string, string, boolean][]
  return {
    states: new Map(found.map(([id, state]) => [id, state])),
    made: new Set(found.flatMap(([id, , isNew]) => (isNew ? [id] : []))),
  }
}
