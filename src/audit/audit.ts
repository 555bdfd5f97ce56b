/**
 * The audit: which operator did what, when, with which parameters, and what came of it.
 *
 *     store.consumers.pause('orders')   ─► audited ─► [audit] running ─► the call ─► [audit] done or failed
 *     store.audit.record(entry, work)   ─────┘        actor: withActor, else the option `actor`, else user@host
 *
 *     audit     the API: list, withActor, record           actor    its name
 *     audited   wraps the calls of operators; which calls those are stands in `assemble.ts`
 *
 * Guarantees:
 * - An action begins only when its row is stored. A row that stays `running` is of an action that runs, or of a process that
 *   ended before it could write the outcome.
 * - A call with `{ tx }` has its row in that transaction: it is stored if and only if the action is.
 * - The row has the names and options of the call, and never the data of an event, a password or an open transaction. Text that
 *   the database cannot store, or that is long, is stored in a shorter form, so that every action can be recorded.
 *
 * What can fail: the row cannot be stored, for example because the role may only read. Then the action is refused. An outcome
 * that cannot be stored is logged, because the action has happened.
 */
import type { Ids } from '../core/id.ts'
import { checkWhole, refuseUnknownOptions } from '../core/options.ts'
import { decodeCursor, encodeCursor, type Page, type PageOptions, pageOptionNames, rowsToLookAt } from '../core/page.ts'
import type { Database, Executor } from '../database/database.ts'
import type { OldRows } from '../database/prune.ts'
import { type Identifier, numeral, sql } from '../database/sql.ts'
import { moment } from '../schema/clock.sql.ts'
import type { Telemetry } from '../telemetry/telemetry.ts'
import { actingAs, checkActor, currentActor } from './actor.ts'
import { auditNames } from './schema.ts'
import { errorOf, shorten, storable } from './storable.ts'

export interface Audit {
  /** The newest first: 100 on a page by default, at most 10 000. */
  list(options?: ListAuditOptions): Promise<Page<AuditEntry>>
  /** Runs `work` as another actor: actions in it are recorded under this name, also those of other stores. */
  withActor<T>(actor: string, work: () => T): T
  /** Records an action of your own program: stores the entry, runs `work`, and stores whether it failed. */
  record<T>(action: AuditedAction, work: () => Promise<T>): Promise<T>
}

export interface AuditedAction {
  /** The noun and the verb: `consumers.pause`. */
  readonly action: string
  /** The name of the thing that is changed. */
  readonly target?: string | undefined
  readonly parameters?: Readonly<Record<string, unknown>> | undefined
}

export interface AuditEntry {
  readonly id: string
  readonly actor: string
  /** The noun and the verb of the call: `consumers.pause`. */
  readonly action: string
  /** The name of the consumer, handler, stream, … that was changed. */
  readonly target: string | undefined
  readonly parameters: Readonly<Record<string, unknown>>
  /** `running`: it still runs, or its process ended before it could write the outcome. */
  readonly outcome: AuditOutcome
  /** The value that the call returned, if it is short. */
  readonly result: unknown
  readonly error: { readonly code: string | undefined; readonly message: string } | undefined
  readonly startedAt: Date
  readonly endedAt: Date | undefined
}

export type AuditOutcome = 'running' | 'done' | 'failed'

export interface ListAuditOptions extends PageOptions {
  readonly actor?: string | undefined
  /** An action (`consumers.pause`), or all of a noun (`consumers`). */
  readonly action?: string | undefined
  readonly target?: string | undefined
  readonly outcome?: AuditOutcome | undefined
  /** Only actions that began at this time or later. */
  readonly since?: Date | undefined
}

export interface AuditParts {
  readonly database: Database
  readonly schema: string
  /** The function of the schema that gives the time. */
  readonly clock: Identifier
  readonly ids: Ids
  readonly telemetry: Telemetry
  /** The actor if `withActor` does not give one. Default: the user of the operating system, and the host. */
  readonly actor?: string | undefined
}

export interface OpenAudit extends Audit {
  /** Stores an action that has succeeded, in its transaction. */
  recordDone(action: AuditedAction, executor: Executor, result?: unknown): Promise<void>
  /** Stores an action that has failed and that could not be recorded before it, as far as that is possible. */
  recordFailed(action: AuditedAction, error: unknown): Promise<void>
}

export function openAudit(parts: AuditParts): OpenAudit {
  const { database, telemetry, schema } = parts
  const actorHere = parts.actor === undefined ? undefined : checkActor(parts.actor)
  return {
    list: (options = {}) => listEntries(parts, options),
    withActor: (actor, work) => actingAs(checkActor(actor), work),
    async record(action, work) {
      database.refuseInsideTransaction(action.action)
      const id = await insert(parts, action, currentActor(actorHere), database)
      const end = (outcome: AuditOutcome, result: unknown, error: unknown): Promise<void> =>
        update(parts, id, { outcome, result, error }).catch((failure: unknown) =>
          telemetry.log.error(
            { schema, action: action.action, outcome, error: failure },
            'The outcome of an action could not be recorded in the audit.',
          ),
        )
      try {
        const result = await work()
        await end('done', result, undefined)
        return result
      } catch (error) {
        await end('failed', undefined, error)
        throw error
      }
    },
    async recordDone(action, executor, result) {
      await insert(parts, action, currentActor(actorHere), executor, { outcome: 'done', result })
    },
    async recordFailed(action, error) {
      await insert(parts, action, currentActor(actorHere), database, { outcome: 'failed', error }).catch(
        (failure: unknown) =>
          telemetry.log.error(
            { schema, action: action.action, outcome: 'failed', error: failure },
            'The outcome of an action could not be recorded in the audit.',
          ),
      )
    },
  }
}

/** Entries older than their retention, also those without an outcome. */
export function oldEntries({
  schema,
  clock,
  later,
}: Pick<AuditParts, 'schema' | 'clock'> & Pick<OldRows, 'later'>): OldRows {
  return {
    label: 'audit.prune',
    table: auditNames({ schema }).audit,
    key: ['id'],
    clock,
    later,
    where: 't.started_at < $1',
  }
}

interface Outcome {
  readonly outcome: AuditOutcome
  readonly result?: unknown
  readonly error?: unknown
}

async function insert(
  parts: AuditParts,
  { action, target, parameters = {} }: AuditedAction,
  actor: string,
  executor: Executor,
  { outcome, result, error }: Outcome = { outcome: 'running' },
): Promise<string> {
  const id = parts.ids.next()
  const has = outcome !== 'running'
  await executor.run(sql`/* audit.record */
    insert into ${auditNames(parts).audit}
      (started_at, ended_at, id, actor, action, target, outcome, parameters, result, error)
    select moment.at, case when ${has}::boolean then moment.at end, ${id}::uuid, ${actor}::text,
      ${shorten(action)}::text, ${target === undefined ? null : shorten(target)}::text, ${outcome}::text,
      ${storable(parameters) ?? '{}'}::jsonb, ${storable(result) ?? null}::jsonb,
      ${outcome === 'failed' ? (storable(errorOf(error)) ?? null) : null}::jsonb
    from ${moment(parts.clock)}`)
  return id
}

async function update(parts: AuditParts, id: string, { outcome, result, error }: Outcome): Promise<void> {
  const failure = outcome === 'failed' ? storable(errorOf(error)) : undefined
  await parts.database.run(sql`/* audit.end */
    update ${auditNames(parts).audit} as a
    set outcome = ${outcome}::text,
      ended_at = ${parts.clock}(a.started_at),
      result = ${storable(result) ?? null}::jsonb,
      error = ${failure ?? null}::jsonb
    where a.id = ${id}::uuid`)
}

interface Row {
  readonly id: string
  readonly actor: string
  readonly action: string
  readonly target: string | null
  readonly parameters: Record<string, unknown>
  readonly outcome: AuditOutcome
  readonly result: unknown
  readonly error: { code?: string; message: string } | null
  readonly started_at: Date
  readonly ended_at: Date | null
  /** With microseconds, which a Date does not have. */
  readonly started_us: number
  readonly matched: boolean
}

const listOptionNames = ['actor', 'action', 'target', 'outcome', 'since', ...pageOptionNames]

async function listEntries(parts: AuditParts, options: ListAuditOptions): Promise<Page<AuditEntry>> {
  refuseUnknownOptions('store.audit.list', options, listOptionNames)
  const { limit = 100, actor = null, action = null, target = null, outcome = null, since = null } = options
  checkWhole('limit', limit, 1, 10_000)
  const [at, id] = options.after === undefined ? [null, null] : (decodeCursor(options.after, 2) as [number, string])
  const isFiltered = [actor, action, target, outcome].some(value => value !== null)
  const looks = numeral(rowsToLookAt(isFiltered, limit))
  const rows = await parts.database.run<Row>(sql`/* audit.list */
    with looked as materialized (
      select a.id, a.actor, a.action, a.target, a.outcome, a.started_at
      from ${auditNames(parts).audit} as a
      where (a.started_at, a.id) < (
        coalesce('epoch'::timestamptz + ${at}::bigint * interval '1 microsecond', 'infinity'::timestamptz),
        coalesce(${id}::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid))
      order by a.started_at desc, a.id desc
      limit ${looks}),
    found as (
      select l.id, l.started_at, true as matched
      from looked as l
      where (${actor}::text is null or l.actor = ${actor}::text)
        and (${action}::text is null or l.action = ${action}::text or starts_with(l.action, ${action}::text || '.'))
        and (${target}::text is null or l.target = ${target}::text)
        and (${outcome}::text is null or l.outcome = ${outcome}::text)
        and l.started_at >= coalesce(${since}::timestamptz, '-infinity'::timestamptz)
      order by l.started_at desc, l.id desc
      limit ${limit + 1}::integer),
    rest as (
      select l.id, l.started_at, false as matched
      from looked as l
      where (select count(*) from looked) >= ${looks}
        and l.started_at >= coalesce(${since}::timestamptz, '-infinity'::timestamptz)
      order by l.started_at, l.id
      limit 1)
    select a.id, a.actor, a.action, a.target, a.parameters, a.outcome, a.result, a.error, a.started_at, a.ended_at,
      (extract(epoch from a.started_at) * 1000000)::bigint as started_us, l.matched
    from (select * from found union all select * from rest) as l
    cross join lateral (
      select * from ${auditNames(parts).audit} as each where each.id = l.id limit 1) as a
    order by l.matched desc, a.started_at desc, a.id desc`)
  const found = rows.filter(row => row.matched)
  const items = found.slice(0, limit)
  const end = found.length > limit ? items.at(-1) : rows.find(row => !row.matched)
  return {
    items: items.map(entryOf),
    next: end === undefined ? undefined : encodeCursor([end.started_us, end.id]),
  }
}

function entryOf(row: Row): AuditEntry {
  return {
    id: row.id,
    actor: row.actor,
    action: row.action,
    target: row.target ?? undefined,
    parameters: row.parameters,
    outcome: row.outcome,
    result: row.result ?? undefined,
    error: row.error === null ? undefined : { code: row.error.code, message: row.error.message },
    startedAt: row.started_at,
    endedAt: row.ended_at ?? undefined,
  }
}
