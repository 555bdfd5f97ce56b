/**
 * Dispatching in one call, for events that need nothing but a queue: no inline handlers, lanes, batches, parents, attributes or waits.
 *
 *     routings ─► capacity of a worker in this process ─► workflow_dispatch_page: executions, checkpoint
 *                    └─► runs them before, if they are quick ─┘                      └─► the others begin there at once
 *
 * With a transaction and a claim there are nine calls in a row between an append and its handler; this way there are three.
 * A worker of this process that has room lends its capacity, under a fence of its own: executions that fit begin in the
 * same call, and are handed to the worker when that is committed. Quick ones run before the call, and have ended with it
 * (`work/early.ts`).
 */
import { LeaseLost } from '../../consumers/errors.ts'
import { isInterruption } from '../../consumers/run/failure.ts'
import { OutcomeUnknown } from '../../database/errors.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { dispatcherName, type Route } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import type { SettledRow, Watched } from '../settled.ts'
import { begunAtDispatch, type Claimed } from '../work/claim.ts'
import type { EarlyPage } from '../work/early.ts'
import type { NewExecution } from './enqueue.ts'
import { byWorkflow, executionsOf, type Routing } from './routing.ts'

/** A worker of this process, as the dispatcher sees it. */
export interface LocalWorker {
  /** Undefined if it has no room. */
  nextCapacity(): Promise<Capacity | undefined>
  /** The ends of executions that could not be stored no longer count. */
  forgetEnds(): void
}

/** Room of a worker, lent for one call: `begin` is called once, with the executions that have begun. */
export interface Capacity {
  readonly owner: string
  /** A fence that was never used before. */
  readonly fence: number
  readonly routes: readonly number[]
  /** The most executions that may begin. */
  readonly limit: number
  /** How much longer than its timeout an attempt may last before other workers take it over. */
  readonly graceMs: number
  /** Executions that began without being named here are found by the worker's next look, and released. */
  begin(executions: readonly Claimed[]): void
  /** Runs executions that have no rows yet; undefined if the worker would rather have them stored before. */
  runEarly(executions: readonly Claimed[]): EarlyPage | undefined
  /** The page is stored, and these executions have begun with it; undefined if it is not stored. */
  closeEarly(page: EarlyPage, begun: readonly string[] | undefined): void
}

/** The workers of this process; those that start and stop add and remove themselves. */
export interface LocalWorkers {
  add(worker: LocalWorker): () => void
  /** Of the workers that have room, that of the one which was asked the longest time ago. */
  nextCapacity(): Promise<Capacity | undefined>
  forgetEnds(): void
}

export function localWorkers(): LocalWorkers {
  const workers = new Set<LocalWorker>()
  return {
    add(worker) {
      workers.add(worker)
      return () => workers.delete(worker)
    },
    async nextCapacity() {
      for (const worker of [...workers]) {
        const capacity = await worker.nextCapacity()
        if (capacity === undefined) continue
        // To the end of the list, unless it has stopped meanwhile.
        if (workers.delete(worker)) workers.add(worker)
        return capacity
      }
      return undefined
    },
    forgetEnds() {
      for (const worker of workers) worker.forgetEnds()
    },
  }
}

export interface PlainBatch {
  readonly routings: readonly Routing[]
  /** The version of the routes that they were made with. */
  readonly version: number
  /** The checkpoint of the dispatcher that is stored. */
  readonly from: number
  readonly fence: number
  /** The checkpoint of the dispatcher after this batch. */
  readonly checkpoint: number
  /** How much its events take, about. */
  readonly bytes: number
  /** When executions that begin now have begun, by the database's clock; undefined if none may begin before the call. */
  readonly now: Date | undefined
  /** The workflows that callers wait for, asked right before the call. */
  watched(correlationIds: readonly string[]): Watched
}

export interface PlainDispatch {
  readonly isPaused: boolean
  /** Whether a workflow may have settled with it. */
  readonly isEnd: boolean
  /** Whether executions are ready to be claimed. */
  readonly isReady: boolean
  /** Whether executions have begun. */
  readonly hasBegun: boolean
  /** When it was done, by the database's clock. */
  readonly at: Date
  /** To be called with the hint that executions have ended. */
  readonly tellWatched: () => void
}

/** Undefined: nothing was done, and the events have to be dispatched step by step. */
export async function dispatchPlain(
  log: Log,
  workers: LocalWorkers,
  batch: PlainBatch,
): Promise<PlainDispatch | undefined> {
  const executions = batch.routings.flatMap(routing => executionsOf(routing))
  if (!batch.routings.every(isPlain) || !executions.every(isQueued)) return undefined
  const capacity = executions.length === 0 ? undefined : await workers.nextCapacity()
  const early = capacity === undefined ? undefined : runEarly(batch, executions, capacity)
  let begun: readonly string[] | undefined
  let started: Claimed[] = []
  try {
    await early?.pause.promise
    const watched = batch.watched(batch.routings.map(({ event }) => event.correlationId))
    const row = await callDispatch(log, batch, executions, { capacity, early, watched })
    if (row.outcome === 'lost') throw new LeaseLost({ consumer: dispatcherName, fence: batch.fence })
    if (row.outcome === 'moved') throw rewound()
    if (row.outcome !== 'done') return undefined
    begun = row.begun ?? []
    if (capacity !== undefined && early === undefined)
      started = begunOf(begun, row.begun_at, batch, executions, capacity)
    return {
      ...{ isPaused: row.is_paused, isEnd: row.is_idle, isReady: row.ready > 0, hasBegun: begun.length > 0 },
      at: row.begun_at,
      tellWatched: () => watched.answer(row.settled ?? []),
    }
  } catch (error) {
    if (isInterruption(error)) throw error
    return undefined
  } finally {
    if (early !== undefined) capacity!.closeEarly(early, begun)
    capacity?.begin(started)
  }
}

/** Runs the executions of the page before the call, if all of them can begin at once. [early-2] */
function runEarly(
  { routings, now, bytes }: PlainBatch,
  executions: readonly NewExecution[],
  { fence, routes, limit, runEarly: run }: Capacity,
): EarlyPage | undefined {
  if (now === undefined || executions.length > limit) return undefined
  const here = new Set(routes)
  const canBegin = (route: Route): boolean =>
    route.kind === 'join' || (route.isUnlimited && !route.isPaused && here.has(route.id))
  if (!routings.every(({ routes: all }) => all.every(canBegin))) return undefined
  const last = routings.at(-1)!.event.createdAt
  const queuedAt = last > now ? last : now
  const events = new Map(routings.map(({ event }) => [event.position, event]))
  return run(
    executions.map(execution =>
      begunAtDispatch(execution, {
        ...{ event: events.get(execution.position)!, bytes: bytes / routings.length, fence, queuedAt },
      }),
    ),
  )
}

function isPlain({ envelope, routes, isFaulty }: Routing): boolean {
  const { batches, parent, attributes } = envelope
  if (attributes !== undefined) return false
  return !isFaulty && batches.length === 0 && parent === undefined && routes.every(({ kind }) => kind !== 'inline')
}

function isQueued({ lane, isUnkeyed }: NewExecution): boolean {
  return lane === undefined && isUnkeyed !== true
}

interface DispatchRow {
  /** Lost: the lease. Moved: the checkpoint. Outdated: the routes. Involved: it needs more than a queue. */
  readonly outcome: 'done' | 'lost' | 'moved' | 'outdated' | 'involved'
  readonly is_paused: boolean
  readonly is_idle: boolean
  readonly ready: number
  readonly begun: string[] | null
  readonly begun_at: Date
  readonly settled: SettledRow[] | null
}

interface CallParts {
  readonly capacity: Capacity | undefined
  readonly early: EarlyPage | undefined
  readonly watched: Watched
}

async function callDispatch(
  log: Log,
  { routings, version, from, fence, checkpoint }: PlainBatch,
  executions: readonly NewExecution[],
  { capacity, early, watched }: CallParts,
): Promise<DispatchRow> {
  const workflows = byWorkflow(routings)
  const ends = early?.seal()
  const stateOf = ({ id }: NewExecution): string => ends!.get(id)?.activity ?? 'begun'
  const runningMsOf = ({ id }: NewExecution): number | null => {
    const end = ends!.get(id)
    return end === undefined ? null : Math.round(end.runningMs)
  }
  const [row] = await log.database.run<DispatchRow>(sql`/* workflows.dispatch */
    select outcome, is_paused, is_idle, ready, to_jsonb(begun) as begun, begun_at, settled
    from ${workflowNames(log).workflow_dispatch_page}(
      p_consumer => ${dispatcherName}::text,
      p_fence => ${fence}::bigint,
      p_version => ${version}::integer,
      p_reached => ${from}::bigint,
      p_first => ${routings[0]!.event.position}::bigint,
      p_checkpoint => ${checkpoint}::bigint,
      p_workflows => ${workflows.map(({ id }) => id)}::text[],
      p_wanted => ${workflows.map(({ isWanted }) => isWanted)}::boolean[],
      p_counts => ${workflows.map(({ count }) => count)}::integer[],
      p_firsts => ${workflows.map(({ first }) => first.position)}::bigint[],
      p_lasts => ${workflows.map(({ last }) => last.position)}::bigint[],
      p_types => ${workflows.map(({ last }) => last.type)}::text[],
      p_ids => ${executions.map(({ id }) => id)}::uuid[],
      p_positions => ${executions.map(({ position }) => position)}::bigint[],
      p_routes => ${executions.map(({ route }) => route)}::integer[],
      p_correlations => ${executions.map(({ correlationId }) => correlationId)}::text[],
      p_worker => ${capacity?.owner ?? null}::text,
      p_worker_fence => ${capacity?.fence ?? null}::bigint,
      p_worker_routes => ${capacity?.routes ?? null}::integer[],
      p_limit => ${capacity?.limit ?? 0}::integer,
      p_grace_ms => ${capacity?.graceMs ?? 0}::integer,
      p_states => ${ends === undefined ? null : executions.map(stateOf)}::text[],
      p_running_ms => ${ends === undefined ? null : executions.map(runningMsOf)}::integer[],
      p_began_at => ${early?.executions[0]?.queuedAt ?? null}::timestamptz,
      p_watched => ${watched.ids.length === 0 ? null : watched.ids}::text[])`)
  return row!
}

/** The executions that have begun, as a claim would have given them. */
function begunOf(
  begun: readonly string[],
  queuedAt: Date,
  { routings, bytes }: PlainBatch,
  executions: readonly NewExecution[],
  { fence }: Capacity,
): Claimed[] {
  if (begun.length === 0) return []
  const events = new Map(routings.map(({ event }) => [event.position, event]))
  const byId = new Map(executions.map(execution => [execution.id, execution]))
  return begun.map(id => {
    const execution = byId.get(id)!
    const event = events.get(execution.position)!
    return begunAtDispatch(execution, { event, bytes: bytes / routings.length, fence, queuedAt })
  })
}

/** The stored checkpoint is not the one this process remembers: a crash of the server has undone it. */
function rewound(): Error {
  return new OutcomeUnknown({
    eventIds: [],
    reason: 'The server has restarted and lost the last dispatch. It is repeated.',
  })
}
