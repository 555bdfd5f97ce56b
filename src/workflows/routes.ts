/**
 * Routes: which handlers, in which version, want which events. They are stored, and the dispatcher uses the stored routes,
 * never the code of its own process; so during a rolling deployment nothing is lost.
 *
 * An event goes to the newest version of a handler that began before it. Registering and dispatching both lock the
 * dispatcher's row, so every event is dispatched by the routes from before a registration or from after it.
 */
import { createHash } from 'node:crypto'
import { ensureConsumer } from '../consumers/consumer.ts'
import { change } from '../consumers/operator.ts'
import { consumerNames } from '../consumers/schema.ts'
import { canonicalJson } from '../core/json.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import { moment } from '../schema/clock.sql.ts'
import { type Handler, type HandlerKind, type RouteDefinition, refusal } from './handler.ts'
import type { Envelope } from './publish.ts'
import { workflowNames } from './schema.ts'

/** The name of the dispatcher among the consumers. */
export const dispatcherName = 'workflows'

export interface Route {
  readonly id: number
  readonly handler: string
  readonly version: number
  readonly kind: HandlerKind
  readonly types: readonly string[] | undefined
  readonly startPosition: number
  /** Its executions wait until it is resumed. */
  readonly isPaused: boolean
  /** It gets no new events; a join still gets those that its open batches wait for. */
  readonly isRetired: boolean
  /** It begins as soon as a worker has room: without a delay, a rate, or a limit of its own. */
  readonly isUnlimited: boolean
  readonly definition: RouteDefinition
}

/** Stores the routes of these handlers that are new or changed, and returns the id of each. */
export async function storeRoutes(log: Log, handlers: readonly Handler[]): Promise<Map<Handler, number>> {
  await ensureConsumer(log, { name: dispatcherName, kind: 'dispatcher', from: 'now' })
  return log.database.transaction(async tx => {
    const { checkpoint } = await lockDispatcher(log, tx)
    const { settled, head } = await settle(log, tx)
    const ids = new Map<Handler, number>()
    for (const handler of handlers) ids.set(handler, await storeRoute(log, tx, handler, { checkpoint, settled, head }))
    await changeRoutes(log, tx)
    return ids
  })
}

/** The holder of this row decides which events are dispatched to which routes. */
export async function lockDispatcher(log: Log, tx: Executor): Promise<{ checkpoint: number; version: number }> {
  const [row] = await tx.run<{ checkpoint: number; version: number }>(sql`/* workflows.lock_dispatcher */
    select checkpoint, coalesce((definition->>'routes')::integer, 0) as version
    from ${consumerNames(log).consumers}
    where name = ${dispatcherName}::text
    for update`)
  return row ?? { checkpoint: 0, version: 0 }
}

/** Marks the routes as changed, so that the dispatcher reads them again. Holds its row from then on. */
export async function changeRoutes(log: Log, tx: Executor): Promise<void> {
  const { version } = await lockDispatcher(log, tx)
  await change(log, [dispatcherName], { definition: { routes: version + 1 }, keepsHolder: true }, tx)
}

async function storeRoute(
  log: Log,
  tx: Executor,
  handler: Handler,
  { checkpoint, settled, head }: Readonly<Record<'checkpoint' | 'settled' | 'head', number>>,
): Promise<number> {
  const {
    name,
    version,
    runsAs: kind,
    types,
    definition,
    priority,
    delayMs,
    timeoutMs,
    deadlineMs,
    concurrency,
    rate,
  } = handler
  const text = JSON.stringify(definition)
  const said = { kind, types, definition, priority, delayMs, timeoutMs, deadlineMs, concurrency, rate }
  const digest = createHash('sha256').update(canonicalJson(said)).digest('hex')
  const known = await tx.run<{
    id: number
    version: number
    digest: string
    kind: string
  }>(sql`/* workflows.known_route */
    select id, version, digest, kind
    from ${workflowNames(log).workflow_routes}
    where handler = ${name}::text`)
  const same = known.find(each => each.version === version)
  if (same?.digest === digest) return same.id
  // Recorded undos are found by name.
  if (known.some(each => (each.kind === 'undo') !== (kind === 'undo'))) {
    const [what, other] = kind === 'undo' ? ['Undo', 'a handler'] : ['Handler', 'an undo']
    throw refusal(`${what} "${name}"`, 'name', `has the name of ${other} that is stored already. Give it another name.`)
  }
  if (same !== undefined) {
    await tx.run(sql`/* workflows.change_route */
      update ${workflowNames(log).workflow_routes}
      set kind = ${kind}::text,
        types = ${types ?? null}::text[],
        digest = ${digest}::text,
        definition = ${text}::jsonb,
        priority = ${priority}::integer,
        delay_ms = ${delayMs}::bigint,
        timeout_ms = ${timeoutMs}::integer,
        deadline_ms = ${deadlineMs ?? null}::bigint,
        concurrency = ${concurrency ?? null}::integer,
        rate_limit = ${rate?.limit ?? null}::integer,
        rate_per_ms = ${rate?.perMs ?? null}::integer,
        retired_at = null
      where id = ${same.id}::integer`)
    return same.id
  }
  if (known.length === 0 && typeof handler.from === 'number' && handler.from > head)
    throw refusal(
      `Handler "${name}"`,
      'from',
      `is to begin after position ${handler.from}, but the log ends at ${head}. Give a position that was read from this log.`,
    )
  // Events that an older version was given are not given to a newer one again.
  const wanted = known.length > 0 || handler.from === 'now' ? settled : startOf(handler)
  const backfill = wanted < checkpoint && known.length === 0 && handler.from !== 'now' ? wanted : null
  const [drawn] = await tx.runArrays(sql`/* workflows.draw_route */
    select (${workflowNames(log).workflow_draw_route}(p_count => 1))[1]`)
  const [row] = await tx.run<{ id: number }>(sql`/* workflows.add_route */
    insert into ${workflowNames(log).workflow_routes}
      (id, handler, version, kind, types, digest, definition, start_position, backfill_position, priority, delay_ms,
        timeout_ms, deadline_ms, concurrency, rate_limit, rate_per_ms, created_at,
        paused_at)
    select ${drawn![0] as number}::integer, ${name}::text, ${version}::integer, ${kind}::text,
      ${types ?? null}::text[], ${digest}::text, ${text}::jsonb, ${wanted}::bigint, ${backfill}::bigint,
      ${priority}::integer, ${delayMs}::bigint, ${timeoutMs}::integer, ${deadlineMs ?? null}::bigint,
      ${concurrency ?? null}::integer, ${rate?.limit ?? null}::integer, ${rate?.perMs ?? null}::integer,
      moment.at, case when ${handler.paused && known.length === 0}::boolean then moment.at end
    from ${moment(log.names.clock)}
    returning id`)
  return row!.id
}

function startOf({ from }: Handler): number {
  return typeof from === 'number' ? from : 0
}

/** The routes that events are dispatched to, and retired joins. Routes that are still backfilled are not among them. */
export async function loadRoutes(log: Log, executor: Executor): Promise<Route[]> {
  const rows = await executor.run<RouteRow>(sql`/* workflows.routes */
    select id, handler, version, kind, to_jsonb(types) as types, start_position, paused_at is not null as paused,
      retired_at is not null as retired, definition,
      delay_ms = 0 and concurrency is null and rate_limit is null as unlimited
    from ${workflowNames(log).workflow_routes}
    where (retired_at is null or kind = 'join')
      and backfill_position is null
    order by id`)
  return rows.map(routeOf)
}

export interface RouteRow {
  readonly id: number
  readonly handler: string
  readonly version: number
  readonly kind: HandlerKind
  readonly types: string[] | null
  readonly start_position: number
  readonly paused: boolean
  /** Absent: false. */
  readonly retired?: boolean
  /** Absent: not known, so false. */
  readonly unlimited?: boolean
  readonly definition: RouteDefinition
}

export function routeOf(row: RouteRow): Route {
  const { id, handler, version, kind, types, start_position: startPosition, paused: isPaused, definition } = row
  const isRetired = row.retired ?? false
  const isUnlimited = row.unlimited ?? false
  return {
    ...{ id, handler, version, kind, types: types ?? undefined, startPosition, isPaused, isRetired, isUnlimited },
    definition,
  }
}

/** The routes of an event: of each handler the newest version that began before it, if possible one that is not retired. */
export function routesFor(routes: readonly Route[], event: RecordedEvent, { failed }: Envelope): Route[] {
  const newest = new Map<string, Route>()
  for (const route of routes) {
    if (route.kind === 'undo' || route.handler === failed || route.startPosition >= event.position) continue
    const known = newest.get(route.handler)
    if (known === undefined || isNewer(route, known)) newest.set(route.handler, route)
  }
  return [...newest.values()].filter(({ types }) => types === undefined || types.includes(event.type))
}

function isNewer(route: Route, known: Route): boolean {
  return route.isRetired === known.isRetired ? known.version < route.version : known.isRetired
}
