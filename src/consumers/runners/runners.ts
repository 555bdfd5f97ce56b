/**
 * Runners: they run the definitions of a store, in one or more processes, and share the work.
 *
 *     store.start() ─► runner ─► parts: consumers, subscriptions, handlers and schedules, upkeep   (runnable.ts)
 *                        │
 *                        ├─ heartbeat ─► [runners]     which runners are alive, and in which role  (row.ts)
 *                        └─ leases ────► [consumers]   which runner holds which consumer           (leases.ts, balance.ts)
 *
 * Guarantees:
 * - Many processes share the work: each consumer is held by one runner at a time, and the runners hold about the same
 *   number of them. When a process dies, others take over within the time of a lease; when one joins, it gets its share.
 * - Runners talk through rows only. A hint makes the next look come at once; without it, it comes in time.
 * - `standby` holds for everything: such a runner runs nothing until no active runner with a name is alive.
 *
 * What can fail: see `runner.ts`. An operator can move the active role between runners with names (`promote`,
 * `demote`); work that is running completes first.
 */
import { type Named, nameOf } from '../../core/definition.ts'
import { nearestName } from '../../core/name.ts'
import { checkWhole, refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, type Page, type PageOptions, pageOf, pageOptionNames } from '../../core/page.ts'
import type { Services } from '../../core/service.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { RunnerNotFound } from '../errors.ts'
import { consumerNames } from '../schema.ts'
import type { RunnerProcess } from './process.ts'
import { demote, isAlive, promote, type RunnerRole, setPaused } from './row.ts'
import { type Runnable, type RunnableKind, runnableKinds } from './runnable.ts'
import { type Runner, type RunnerHooks, type RunnerOptions, type RunnerParts, startRunner } from './runner.ts'

/** A runner of any process, as `store.runners.list()` shows it. */
export interface RunnerDescription {
  /** A random id, a new one with each start. */
  readonly id: string
  readonly name: string | undefined
  readonly role: RunnerRole
  readonly startedAt: Date
  readonly heartbeatAgeMs: number
  /** Whether its heartbeat is fresh. */
  readonly isAlive: boolean
  /** The consumers whose leases it holds. */
  readonly holds: readonly string[]
  /** The most handlers it runs at the same time; undefined if it runs none. */
  readonly concurrency: number | undefined
  /** Undefined before its first heartbeat. */
  readonly process: RunnerProcess | undefined
}

/** The runners of all processes. */
export interface Runners {
  /** The names of the definitions that `start` would run in this process, by kind. */
  registered(): Readonly<Record<RunnableKind, readonly string[]>>
  list(options?: PageOptions): Promise<Page<RunnerDescription>>
  /** Makes a runner active, by its name; the active one with a name becomes a standby. */
  promote(runner: Named): Promise<void>
  /** Makes a runner a standby, by its name; the one that has waited longest becomes active. */
  demote(runner: Named): Promise<void>
  /** Drains a runner, by its name or its id: running work completes, and it runs nothing until `resume`. */
  pause(runner: Named): Promise<void>
  resume(runner: Named): Promise<void>
}

export interface OpenRunners {
  start(options?: RunnerOptions, hooks?: RunnerHooks): Promise<Runner>
  readonly runners: Runners
}

export function openRunners(parts: RunnerParts & { readonly services: Services }): OpenRunners {
  const { log, wake, services } = parts
  return {
    async start(options = {}, hooks) {
      log.database.refuseInsideTransaction('start')
      return startRunner(services, parts, options, hooks)
    },
    runners: {
      registered: () => registeredNames(parts.runnables),
      list: (options = {}) => listRunners(log, options),
      async promote(runner) {
        await promote(log, await knownName(log, nameOf(runner)))
        wake.changed()
      },
      async demote(runner) {
        await demote(log, await knownName(log, nameOf(runner)))
        wake.changed()
      },
      async pause(runner) {
        await setPaused(log, await knownId(log, nameOf(runner)), true)
        wake.changed()
      },
      async resume(runner) {
        await setPaused(log, await knownId(log, nameOf(runner)), false)
        wake.changed()
      },
    },
  }
}

function registeredNames(runnables: readonly Runnable[]): Readonly<Record<RunnableKind, readonly string[]>> {
  const namesOf = (kind: RunnableKind): string[] => [
    ...new Set(runnables.flatMap(each => (each.kinds.includes(kind) ? each.names(kind) : []))),
  ]
  return Object.fromEntries(runnableKinds.map(kind => [kind, namesOf(kind)])) as Record<RunnableKind, string[]>
}

interface ListedRow {
  readonly id: string
  readonly name: string | null
  readonly role: RunnerRole
  readonly started_at: Date
  readonly started_text: string
  readonly age_ms: number
  readonly alive: boolean
  readonly concurrency: number | null
  readonly holds: string[] | null
  readonly process: RunnerProcess | null
}

/** Those with names first, by name; then the others, by age. */
async function listRunners(log: Log, options: PageOptions): Promise<Page<RunnerDescription>> {
  refuseUnknownOptions('store.runners.list', options, pageOptionNames)
  const { after, limit = 100 } = options
  checkWhole('limit', limit, 1, 10_000)
  const { consumers, runners } = consumerNames(log)
  const { clock } = log.names
  const [hasNoName, name, startedAt, id] = after === undefined ? [] : decodeCursor(after, 4)
  const rows = await log.database.run<ListedRow>(sql`/* runners.list */
    select
      r.id, r.name, r.role, r.started_at, r.started_at::text as started_text, r.concurrency, r.process,
      greatest(0, extract(epoch from ${clock}(r.fence) - r.heartbeat_at) * 1000)::float8 as age_ms,
      ${isAlive(log)} as alive,
      (select array_agg(c.name order by c.name)
        from ${consumers} as c
        where c.owner = r.id
          and c.lease_until > ${clock}(c.fence)) as holds
    from ${runners} as r
    where ${after === undefined}::boolean
      or (r.name is null, coalesce(r.name, ''), r.started_at, r.id)
        > (${hasNoName ?? null}::boolean, ${name ?? null}::text, ${startedAt ?? null}::timestamptz, ${id ?? null}::text)
    order by r.name is null, coalesce(r.name, ''), r.started_at, r.id
    limit ${limit + 1}::integer`)
  const page = pageOf(rows, limit, row => [row.name === null, row.name ?? '', row.started_text, row.id])
  const items = page.items.map(row => ({
    id: row.id,
    name: row.name ?? undefined,
    role: row.role,
    startedAt: row.started_at,
    heartbeatAgeMs: row.age_ms,
    isAlive: row.alive,
    holds: row.holds ?? [],
    concurrency: row.concurrency ?? undefined,
    process: row.process ?? undefined,
  }))
  return { items, next: page.next }
}

async function knownName(log: Log, name: string): Promise<string> {
  const { items } = await listRunners(log, { limit: 10_000 })
  const names = items.flatMap(each => (each.isAlive && each.name !== undefined ? [each.name] : []))
  if (names.includes(name)) return name
  throw new RunnerNotFound({ runner: name, nearest: nearestName(name, names) })
}

/** Of a living runner, by its id or its name. */
async function knownId(log: Log, given: string): Promise<string> {
  const { items } = await listRunners(log, { limit: 10_000 })
  const found = items.find(each => each.isAlive && (each.id === given || each.name === given))
  if (found !== undefined) return found.id
  const names = items.flatMap(each => (each.isAlive && each.name !== undefined ? [each.name] : []))
  throw new RunnerNotFound({ runner: given, nearest: nearestName(given, names) })
}
