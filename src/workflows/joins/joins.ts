/**
 * Batches and the joins that close them, moved by what happens in one transaction: events are dispatched, executions end,
 * new ones are emitted. Whoever does it holds the rows of the workflows, so there is one at a time, and exactly one
 * of them finds a join complete.
 *
 * A join of a batch is opened by the first event that arrives at it; by the fan-out that names it; or by a handler that
 * says it emits what the join waits for, and ends without. Branches that had ended by then count. While it is open it
 * holds its workflow, and the branches around its batch, open; when it closes, its execution does.
 *
 * The number of statements does not depend on how many events, branches and joins are moved.
 */
import type { Awaitable } from '../../core/core.ts'
import { derivedId } from '../../core/derived-id.ts'
import { nearestName } from '../../core/nearest.ts'
import type { Executor } from '../../database/database.ts'
import type { Log } from '../../events/log.ts'
import type { NewExecution } from '../dispatch/enqueue.ts'
import type { Emitted } from '../emitted.ts'
import type { BatchPlace } from '../envelope.ts'
import { HandlerNotFound } from '../errors.ts'
import type { Route } from '../routes.ts'
import { arrive, closeIfDue, endBranch, type Join } from './arrive.ts'
import { addChange, type BranchChanges, type Cause, type EndedBranch, readEnded, storeBranches } from './branches.ts'
import { openJoins, readJoins, storeJoins, type WantedJoin } from './join-rows.ts'

/** What happened to batches in one transaction. */
export interface BatchMoves {
  readonly branches: readonly BranchMove[]
  readonly arrivals: readonly Arrival[]
  /** What was emitted: events under way, and batches opened. */
  readonly emitted: readonly (Emitted & Cause)[]
}

export interface BranchMove extends Cause {
  readonly batches: readonly BatchPlace[]
  /** How many things more, or less, are under way in its branches. */
  readonly change: number
  readonly isFailed: boolean
  /** What the handlers that have ended could have emitted and did not. */
  readonly emits: readonly string[]
}

/** An event that a join waits for. */
export interface Arrival extends Cause {
  readonly route: Route
  readonly batches: readonly BatchPlace[]
}

export function hasMoves({ branches, arrivals, emitted }: BatchMoves): boolean {
  return (
    branches.length > 0 ||
    arrivals.length > 0 ||
    emitted.some(({ opened, places }) => opened.length > 0 || places.some(each => each.length > 0))
  )
}

export interface MovedBatches {
  /** The executions of joins that are complete now: the caller queues them. */
  readonly joined: readonly NewExecution[]
  /** Whether a join was opened that has a time limit. */
  readonly isTimed: boolean
}

/** The caller holds the workflows. The routes are only asked for if they are needed. */
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

/** The same for a batch and a handler, whatever its version. The batch's time goes first, as in all ids that are made so. */
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
