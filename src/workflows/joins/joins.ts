/**
 * Batches and the joins that close them. They change with the events of one transaction: events are dispatched,
 * executions end, events are emitted. That transaction holds the rows of the workflows, so one at a time moves a batch,
 * and exactly one finds a join complete.
 *
 *     emitted ─► [branches: open work of each] ────► a branch has ended ─┐
 *     dispatched ─► arrives at its join ─────────────────────────────────┴─► [joins] ─► complete ─► its execution
 *
 * A join of a batch is opened by the first event that arrives at it, by the fan-out that names it, or by a handler that
 * declares the type that the join waits for in `emits`, and ends without such an event. Branches that had ended by then
 * count. While it is open it keeps its workflow, and the branches around its batch, open; when it closes, its execution
 * does.
 *
 * Guarantees: a join is complete once, however many events arrive at the same moment. The number of statements does not
 * depend on how many events, branches and joins are moved.
 */
import type { Awaitable } from '../../core/core.ts'
import { derivedId } from '../../core/id.ts'
import { nearestName } from '../../core/name.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { executionId, type NewExecution } from '../dispatch/enqueue.ts'
import type { InlineRun } from '../dispatch/inline.ts'
import type { Routing } from '../dispatch/routing.ts'
import type { Emitted } from '../emit.ts'
import { HandlerNotFound } from '../errors.ts'
import { type BatchPlace, envelopeOf } from '../publish.ts'
import { loadRoutes, type Route } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import type { Outcome } from '../work/outcome.ts'
import { arrive, closeIfDue, endBranch, type Join } from './arrive.ts'
import { addChange, type BranchChanges, type Cause, type EndedBranch, readEnded, storeBranches } from './branches.ts'
import { batchesOf } from './join.ts'
import { openJoins, readJoins, storeJoins, type WantedJoin } from './join-rows.ts'

/** The changes of batches in one transaction. */
export interface BatchMoves {
  readonly branches: readonly BranchMove[]
  readonly arrivals: readonly Arrival[]
  /** Events that were emitted, and batches that were opened. */
  readonly emitted: readonly (Emitted & Cause)[]
}

export interface BranchMove extends Cause {
  readonly batches: readonly BatchPlace[]
  /** How much more, or less, is open in its branches. */
  readonly change: number
  readonly isFailed: boolean
  /** The types that the handlers that have ended may emit and did not. */
  readonly emits: readonly string[]
}

/** An event that arrives at a join. */
export interface Arrival extends Cause {
  readonly route: Route
  readonly batches: readonly BatchPlace[]
}

function hasMoves({ branches, arrivals, emitted }: BatchMoves): boolean {
  return (
    branches.length > 0 ||
    arrivals.length > 0 ||
    emitted.some(({ opened, places }) => opened.length > 0 || places.some(each => each.length > 0))
  )
}

export interface MovedBatches {
  /** The executions of joins that are complete now, which the caller queues. */
  readonly joined: readonly NewExecution[]
  /** Whether a join was opened that has a time limit. */
  readonly isTimed: boolean
}

/** The caller holds the workflows. The routes are read only if they are needed. [join-1] */
export async function moveBatches(
  log: Log,
  tx: Executor,
  owner: string,
  routes: () => Awaitable<readonly Route[]>,
  moves: BatchMoves,
): Promise<MovedBatches> {
  if (!hasMoves(moves)) return { joined: [], isTimed: false }
  const changes: BranchChanges = new Map()
  for (const move of moves.branches) addChange(changes, move, move.batches, move.change, move.isFailed)
  for (const each of moves.emitted) for (const places of each.places) addChange(changes, each, places, 1)
  const wanted = await wantedJoins(routes, moves)
  const arriving = moves.arrivals.map(({ batches }) => batches.at(-1)!.index)
  const known = await readJoins(log, tx, wanted, changes, arriving)
  const opened = await openJoins(
    log,
    tx,
    owner,
    [...wanted.values()].filter(({ id, route }) => !known.has(id) && !route.isRetired),
  )
  for (const { outer, correlationId, position } of opened) addChange(changes, { correlationId, position }, outer, 1)
  const ended = await storeBranches(log, tx, changes)
  const fresh = new Set(moves.emitted.flatMap(each => each.opened.map(({ id }) => id)))
  const older = opened.filter(({ batch }) => !fresh.has(batch.id))
  const endedBefore = await readEnded(log, tx, [...new Set(older.map(({ batch }) => batch.id))])
  const joins = new Map([...known, ...opened.map(({ id, join }) => [id, join] as const)])
  for (const { route, batches, correlationId, position } of moves.arrivals) {
    const place = batches.at(-1)!
    const join = joins.get(joinId(correlationId, place.id, route.handler))
    if (join !== undefined) arrive(log, join, place, position)
  }
  endBranches(joins, ended)
  endBranches(new Map(opened.map(({ id, join }) => [id, join])), endedBefore)
  for (const { join, position } of opened) closeIfDue(join, position)
  const isTimed = opened.some(({ join }) => join.definition.timeoutMs !== undefined)
  return { joined: await storeJoins(log, tx, [...joins.values()]), isTimed }
}

/** The same for a batch and a handler, in every version of it. The time of the batch comes first, as in all derived ids. */
export function joinId(correlationId: string, batchId: string, handler: string): string {
  const at = new Date(Number.parseInt(batchId.slice(0, 8) + batchId.slice(9, 13), 16))
  return derivedId(at, 'join', correlationId, batchId, handler)
}

function endBranches(joins: ReadonlyMap<string, Join>, ended: readonly EndedBranch[]): void {
  const byBatch = new Map<string, Join[]>()
  for (const join of joins.values()) {
    const all = byBatch.get(batchKey(join)) ?? []
    all.push(join)
    byBatch.set(batchKey(join), all)
  }
  for (const branch of ended) for (const join of byBatch.get(batchKey(branch)) ?? []) endBranch(join, branch)
}

function batchKey({ batchId, correlationId }: Pick<Join, 'batchId' | 'correlationId'>): string {
  return `${batchId}/${correlationId}`
}

/** The joins that have to be there because of these moves, by id. */
async function wantedJoins(
  routes: () => Awaitable<readonly Route[]>,
  moves: BatchMoves,
): Promise<Map<string, WantedJoin>> {
  const wanted = new Map<string, WantedJoin>()
  const want = (route: Route, cause: Cause, batch: Omit<BatchPlace, 'index'>, outer: readonly BatchPlace[]): void => {
    const { correlationId, position } = cause
    const id = joinId(correlationId, batch.id, route.handler)
    if (!wanted.has(id)) wanted.set(id, { id, route, batch, outer, correlationId, position })
  }
  for (const arrival of moves.arrivals)
    want(arrival.route, arrival, arrival.batches.at(-1)!, arrival.batches.slice(0, -1))
  for (const each of moves.emitted)
    for (const batch of each.opened)
      if (batch.join !== undefined) want(namedJoin(await routes(), batch.join), each, batch, batch.outer)
  for (const move of moves.branches) {
    const innermost = move.batches.at(-1)
    if (innermost === undefined || move.emits.length === 0) continue
    for (const route of joinsOf(await routes(), move)) want(route, move, innermost, move.batches.slice(0, -1))
  }
  return wanted
}

function namedJoin(routes: readonly Route[], handler: string): Route {
  const joins = routes.filter(({ kind, isRetired }) => kind === 'join' && !isRetired)
  const versions = joins.filter(route => route.handler === handler).sort((a, b) => b.version - a.version)
  if (versions[0] !== undefined) return versions[0]
  const nearest = nearestName(
    handler,
    joins.map(route => route.handler),
  )
  throw new HandlerNotFound({ handler, nearest })
}

/** Of each join that waits for one of these types, the newest version that began before the event. */
function joinsOf(routes: readonly Route[], { emits, position }: BranchMove): Route[] {
  const newest = new Map<string, Route>()
  for (const route of routes) {
    if (route.kind !== 'join' || route.isRetired || route.startPosition >= position) continue
    const known = newest.get(route.handler)
    if (known === undefined || known.version < route.version) newest.set(route.handler, route)
  }
  return [...newest.values()].filter(({ types }) => types?.some(type => emits.includes(type)))
}

/** How the dispatch of events moves batches: the events are no longer open, their executions are. */
export function dispatchMoves(
  routings: readonly Routing[],
  executions: readonly NewExecution[],
  runs: readonly InlineRun[],
  isRepeated: boolean,
): BatchMoves {
  const started = new Map<number, number>()
  for (const { position } of executions) started.set(position, (started.get(position) ?? 0) + 1)
  const queued = new Set(executions.map(({ id }) => id))
  const members = routings.filter(({ envelope }) => envelope.batches.length > 0)
  return {
    branches: members.flatMap(routing => {
      const { correlationId, position } = routing.event
      const { batches, handler } = routing.envelope
      // A published event was not open before; if it starts nothing, nothing has ended.
      const change = (started.get(position) ?? 0) - (handler === undefined || isRepeated ? 0 : 1)
      const emits = unmet(routing, queued, runs)
      return change === 0 && emits.length === 0
        ? []
        : [{ correlationId, position, batches, change, isFailed: false, emits }]
    }),
    arrivals: members.flatMap(({ event: { correlationId, position }, envelope: { batches }, routes }) =>
      routes.filter(({ kind }) => kind === 'join').map(route => ({ route, correlationId, position, batches })),
    ),
    emitted: runs.flatMap(({ event: { correlationId, position }, emitted }) =>
      emitted === undefined ? [] : [{ ...emitted, correlationId, position }],
    ),
  }
}

/** The types that inline handlers which ran for this event, or did not want it, may emit and did not. */
function unmet({ event, routes }: Routing, queued: ReadonlySet<string>, runs: readonly InlineRun[]): string[] {
  const declared = routes.filter(({ kind, definition }) => kind === 'inline' && definition.emits !== undefined)
  return declared.flatMap(({ handler, definition }) => {
    const id = executionId(event, handler)
    const types = runs.find(run => run.executionId === id)?.emitted?.types ?? []
    return queued.has(id) ? [] : (definition.emits ?? []).filter(type => !types.includes(type))
  })
}

/** How the outcomes of attempts move batches: ended executions are no longer open, the events they emitted are. */
export function completeMoves(outcomes: readonly Outcome[]): BatchMoves {
  const done = outcomes.filter(({ kind, execution }) => kind === 'done' && execution.undoId === undefined)
  return {
    arrivals: [],
    branches: done.flatMap(({ execution, activity, emits, emitted }) => {
      const { correlationId, position } = execution
      const batches = batchesOf(execution)
      if (batches.length === 0) return []
      const move = { correlationId, position, batches, change: -1, isFailed: activity === 'failed' }
      return [{ ...move, emits: emits.filter(type => emitted?.types.includes(type) !== true) }]
    }),
    emitted: done.flatMap(({ execution: { correlationId, position }, emitted }) =>
      emitted === undefined ? [] : [{ ...emitted, correlationId, position }],
    ),
  }
}

/**
 * Executions that enter their branches (+1) or leave them (-1) without an event or an outcome: a retry, a removal. Returns
 * the executions of joins that are complete with it, which the caller queues. The caller holds the workflows. [join-10]
 */
export async function recountBranches(
  log: Log,
  tx: Executor,
  owner: string,
  executions: readonly Pick<NewExecution, 'position' | 'correlationId' | 'joinId'>[],
  change: 1 | -1,
): Promise<readonly NewExecution[]> {
  if (executions.length === 0) return []
  const rows = await tx.run<{
    n: number
    headers: Record<string, unknown> | null
    outer: BatchPlace[] | null
  }>(sql`/* workflows.places */
    select u.n, e.headers, j.outer_batches as outer
    from unnest(
      ${executions.map(({ position }) => position)}::bigint[],
      ${executions.map(({ joinId }) => joinId ?? null)}::uuid[]) with ordinality as u(position, join_id, n)
    left join lateral (
      select found.headers
      from ${log.names.events} as found
      where found.position = u.position
      limit 1) as e on true
    left join lateral (
      select found.outer_batches
      from ${workflowNames(log).workflow_joins} as found
      where found.id = u.join_id
      limit 1) as j on true`)
  const branches = rows.flatMap(({ n, headers, outer }) => {
    const { position, correlationId } = executions[Number(n) - 1]!
    const batches = outer ?? envelopeOf({ headers: headers ?? {} }).batches
    return batches.length === 0 ? [] : [{ position, correlationId, batches, change, isFailed: false, emits: [] }]
  })
  const moves = { branches, arrivals: [], emitted: [] }
  return (await moveBatches(log, tx, owner, () => loadRoutes(log, tx), moves)).joined
}
