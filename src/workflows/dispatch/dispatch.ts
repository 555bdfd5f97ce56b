/**
 * The dispatcher: an ordinary consumer of the log that turns events into executions, in the transaction of its checkpoint.
 *
 *     [events] ─► routes, as stored ─► workflows locked, sorted ─► inline handlers, each in a savepoint
 *                                          └─► waits answered, joins counted, executions queued ─► checkpoint
 *
 * Events that need nothing but a queue take a shorter way to the same end: `plain.ts`. A handler that begins in the past
 * is given the events before it by `backfill.ts`.
 *
 * Guarantees:
 * - Every event goes to every handler that wants it, whatever code the dispatching process has: routes are stored.
 * - Executions and checkpoint are one transaction, so no event is dispatched twice or skipped.
 * - The dispatcher never waits for users' code. An inline handler that fails, or takes too long, becomes an execution.
 *
 * What can fail: anything it needs. It has no dead letters: a failure is tried again, because an event that is skipped
 * is work lost.
 */

import { type BatchContext, type Consumer, consumer } from '../../consumers/consumer.ts'
import { isInterruption } from '../../consumers/run/failure.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { elapsedMs } from '../../core/host.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import type { AppendIn, EmitLimits } from '../emit.ts'
import type { Handler } from '../handler.ts'
import type { WorkflowHints } from '../hints.ts'
import { dispatchMoves, moveBatches } from '../joins/joins.ts'
import type { Attributes } from '../publish.ts'
import { dispatcherName, loadRoutes, type Route } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import type { SettledWatch, Watched } from '../settled.ts'
import { answerWaits } from '../steps/waits.ts'
import { enqueue } from './enqueue.ts'
import { type InlineRun, recordInline, runInline } from './inline.ts'
import { passOverUnwanted } from './pass-over.ts'
import { dispatchPlain, type LocalWorkers } from './plain.ts'
import { byWorkflow, executionsOf, type Routing, routingOf } from './routing.ts'

export interface DispatchParts {
  readonly log: Log
  readonly limits: EmitLimits
  readonly append: AppendIn
  /** The code of a handler, if this process has it. */
  codeOf(handler: string, version: number): Handler | undefined
}

/** How far this process has dispatched; 0 if it does not know, or another process dispatches. */
export interface DispatchProgress {
  reached: number
}

export interface DispatcherParts extends DispatchParts {
  readonly hints: WorkflowHints
  readonly workers: LocalWorkers
  readonly progress: DispatchProgress
  readonly settledWatch: SettledWatch
}

/** The owner of the counters of the dispatcher: one process at a time dispatches. */
const owner = 'dispatcher'

export function dispatcher(parts: DispatcherParts): Consumer {
  const { log, hints, workers, progress, settledWatch } = parts
  let tenure: Tenure | undefined
  const beginTenure = (fence: number, isAbandoned: boolean): Tenure => {
    workers.forgetEnds()
    return { fence, careful: isAbandoned ? carefulEvents : 0, present: undefined }
  }
  let known: { readonly version: number; readonly routes: readonly Route[] } | undefined
  return consumer(
    {
      name: dispatcherName,
      kind: 'dispatcher',
      filter: {},
      takesFaults: true,
      async passOver(part) {
        const passed = await passOverUnwanted(log, part)
        if (passed === undefined) return undefined
        progress.reached = part.to
        // A workflow without handlers has settled with its last event.
        hints.ended()
        return passed
      },
      async handle(events, ctx) {
        const version = await lockUnflushed(log, ctx.tx)
        if (known === undefined || known.version !== version) known = { version, routes: await loadRoutes(log, ctx.tx) }
        const { isReady, isTouched } = await dispatch(parts, events, known.routes, ctx)
        ctx.tx.afterCommit(() => {
          progress.reached = events.at(-1)!.position
          if (isReady) hints.ready()
          if (isTouched) hints.ended()
        })
      },
      async handleAtOnce(events, { fence, from, checkpoint, faults, bytes, isAbandoned }) {
        if (known === undefined) return undefined
        const { routes, version } = known
        tenure = tenure?.fence === fence ? tenure : beginTenure(fence, isAbandoned)
        const { present } = tenure
        const routings = events.map(event => routingOf(event, routes, faults.has(event.position)))
        const now = tenure.careful > 0 || present === undefined ? undefined : present()
        const watched = (ids: readonly string[]): Watched => settledWatch.watched(ids)
        const done = await dispatchPlain(log, workers, {
          ...{ routings, version, from, fence, checkpoint, bytes, now, watched },
        }).catch((error: unknown) => {
          // After a failure only the stored checkpoint counts.
          progress.reached = 0
          throw error
        })
        tenure.careful -= events.length
        if (done === undefined) return undefined
        progress.reached = checkpoint
        tenure.present = clockFrom(done.at)
        if (done.isReady) hints.ready()
        else if (done.hasBegun) hints.begun()
        if (done.isEnd) settledWatch.quietly(done.tellWatched, hints.ended)
        return done
      },
    },
    { onFailure: () => 'retry', backoff: { baseMs: 50, maxMs: 5_000 }, from: 'now' },
  )
}

/** The time under one fence. */
interface Tenure {
  readonly fence: number
  /** So many events get rows before their handlers run. */
  careful: number
  /** The time by the database's clock, as the last call said it. */
  present: (() => Date) | undefined
}

/**
 * After a holder that let its lease expire: it may have died of an event for which no row, and so no crash, is stored.
 * More than the events of one page, which is what a holder runs before it stores them. [early-5]
 */
const carefulEvents = 1_000

function clockFrom(at: Date): () => Date {
  const readAt = elapsedMs()
  return () => new Date(at.getTime() + elapsedMs() - readAt)
}

/**
 * Not flushed to the disk: a flush takes longer than the dispatch, and nothing is lost without it. Executions and
 * checkpoint are taken back together by a crash, and made again with the same ids; an outcome that builds on them is
 * flushed, and they with it; the next save notices a checkpoint that was undone. With inline handlers it is flushed,
 * because their events are in the log, and readers rely on the log being on the disk. (One caller, publish to settled,
 * dispatch and claim flushed: 57 a second, a handler begins after 11.6 ms; unflushed: 71, and 9.3 ms.)
 */
async function lockUnflushed(log: Log, tx: Executor): Promise<number> {
  const [row] = await tx.run<{ version: number }>(sql`/* workflows.lock_unflushed */
    select coalesce((definition->>'routes')::integer, 0) as version,
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
  return row!.version
}

interface Dispatched {
  /** Whether there are executions to be claimed because of it. */
  readonly isReady: boolean
  /** Whether some of the events belong to workflows at all. */
  readonly isTouched: boolean
}

/** `isRepeated`: the events were dispatched before, to other handlers. */
export async function dispatch(
  parts: DispatchParts,
  events: readonly RecordedEvent[],
  routes: readonly Route[],
  { tx, signal, faults }: Pick<BatchContext, 'tx' | 'signal' | 'faults'>,
  isRepeated = false,
): Promise<Dispatched> {
  const routings = events.map(event => routingOf(event, routes, faults?.has(event.position) ?? false))
  const page = { routings, routes, tx, signal, isRepeated }
  if (!routings.some(routing => routing.routes.some(({ kind }) => kind === 'inline')))
    return dispatchPage(parts, page, false)
  try {
    return await tx.savepoint(() => dispatchPage(parts, page, true))
  } catch (error) {
    if (isInterruption(error) || signal.aborted) throw error
    // The events of inline handlers were refused: all of them are queued, so that each has an outcome of its own.
    return dispatchPage(parts, page, false)
  }
}

interface DispatchPage {
  readonly routings: readonly Routing[]
  readonly routes: readonly Route[]
  readonly tx: Transaction
  readonly signal: AbortSignal
  readonly isRepeated: boolean
}

async function dispatchPage(
  parts: DispatchParts,
  { routings: given, routes, tx, signal, isRepeated }: DispatchPage,
  withInline: boolean,
): Promise<Dispatched> {
  const { log } = parts
  const { states, made } = await admit(log, tx, given)
  if (!isRepeated) await addAttributes(log, tx, given)
  const isActive = ({ event }: Routing): boolean => (states.get(event.correlationId) ?? 'active') === 'active'
  // Events of a workflow that was cancelled, or is being undone, run no handler.
  const routings = given.map(routing => (isActive(routing) ? routing : { ...routing, routes: [] }))
  const known = routings.filter(({ event }) => states.has(event.correlationId))
  const older = known.filter(({ event }) => !made.has(event.correlationId))
  const woken = await answerWaits(log, tx, older)
  const inline = withInline ? await runInline(parts, tx, routings, signal) : { runs: [], done: new Set<string>() }
  const executions = routings.flatMap(routing => executionsOf(routing, inline.done))
  const runs = await appendEmitted(parts, tx, inline.runs)
  const moves = dispatchMoves(known.filter(isActive), executions, runs, isRepeated)
  const { joined, isTimed } = await moveBatches(log, tx, owner, () => routes, moves)
  const enqueued = await enqueue(log, tx, owner, [...executions, ...joined])
  await recordInline(log, tx, inline.runs)
  return { isReady: isTimed || woken + enqueued > 0, isTouched: known.length > 0 }
}

/** The attributes of their events, for workflows that have a row; a later one replaces an earlier one of its name. */
async function addAttributes(log: Log, tx: Transaction, routings: readonly Routing[]): Promise<void> {
  const given = new Map<string, Attributes>()
  for (const { event, envelope } of routings)
    if (envelope.attributes !== undefined)
      given.set(event.correlationId, { ...given.get(event.correlationId), ...envelope.attributes })
  if (given.size === 0) return
  await tx.run(sql`/* workflows.add_attributes */
    update ${workflowNames(log).workflows} as w
    set attributes = coalesce(w.attributes, '{}') || u.attributes::jsonb
    from unnest(
      ${[...given.keys()]}::text[],
      ${[...given.values()].map(each => JSON.stringify(each))}::text[]) as u(id, attributes)
    where w.correlation_id = u.id`)
}

/** Appends the events of inline handlers. Events that were in the log before do not count as emitted again. */
async function appendEmitted(
  { append }: DispatchParts,
  tx: Transaction,
  runs: readonly InlineRun[],
): Promise<InlineRun[]> {
  const appended: InlineRun[] = []
  for (const run of runs) {
    const results = run.emitted?.append === undefined ? [] : await append(run.emitted.append, tx)
    appended.push(results.some(({ repeated }) => repeated) ? { ...run, emitted: undefined } : run)
  }
  return appended
}

/**
 * Locks the workflows of these events, in the order in which they are locked everywhere, and makes rows for new ones;
 * returns their states. A workflow without handlers has no row: an event that no handler wants costs a look at an index.
 */
async function admit(
  log: Log,
  tx: Transaction,
  routings: readonly Routing[],
): Promise<{ states: ReadonlyMap<string, string>; made: ReadonlySet<string> }> {
  const workflows = byWorkflow(routings)
  const parents = workflows.map(({ parent }) => parent ?? null)
  const rows = await tx.runArrays(sql`/* workflows.admit */
    select correlation_id, state, is_new
    from ${workflowNames(log).workflow_admit}(
      p_owner => ${owner}::text,
      p_ids => ${workflows.map(({ id }) => id)}::text[],
      p_wanted => ${workflows.map(({ isWanted }) => isWanted)}::boolean[],
      p_counts => ${workflows.map(({ count }) => count)}::integer[],
      p_firsts => ${workflows.map(({ first }) => first.position)}::bigint[],
      p_lasts => ${workflows.map(({ last }) => last.position)}::bigint[],
      p_types => ${workflows.map(({ last }) => last.type)}::text[],
      p_parents => ${parents.some(parent => parent !== null) ? parents : null}::text[])`)
  const found = rows as [string, string, boolean][]
  return {
    states: new Map(found.map(([id, state]) => [id, state])),
    made: new Set(found.flatMap(([id, , isNew]) => (isNew ? [id] : []))),
  }
}
