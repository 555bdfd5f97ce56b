/**
 * What operators do with the dead letters of handlers. They are the same letters that `store.deadLetters` has, with the same
 * states; here they are found by workflow, handler and kind of failure, and can be retried with other data.
 */

import {
  checkState,
  type DeadLetter,
  type DeadLetterDetails,
  type KeptError,
  listDeadLetters,
  showDeadLetter,
} from '../../consumers/dead-letters/dead-letter.ts'
import { resolveOne, retryOne } from '../../consumers/dead-letters/dead-letters.ts'
import {
  checkRate,
  type DeadLetterKind,
  defaultPerSecond,
  type EditedData,
  type RetryFilter,
  type RetryRequest,
  requestMatching,
} from '../../consumers/dead-letters/retry.ts'
import type { DeadLetterState } from '../../consumers/dead-letters/row.ts'
import { ConsumerNotFound } from '../../consumers/errors.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { nearestName } from '../../core/nearest.ts'
import { checkWhole } from '../../core/whole.ts'
import { fragment, sql } from '../../database/sql.ts'
import { checkEvent } from '../../events/append/prepare.ts'
import type { Log } from '../../events/log.ts'
import { WorkflowNotActive } from '../errors.ts'
import { consumerOf, handlerNameOf, deadLetterPrefix as prefix } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import type { DeadLetterReason } from './record.ts'

export interface HandlerLetter extends DeadLetter {
  readonly handler: string
  readonly reason: DeadLetterReason
  readonly fingerprint: string
  readonly correlationId: string
  readonly executionId: string
}

export type HandlerLetterDetails = HandlerLetter & DeadLetterDetails

export interface HandlerLetterFilter {
  handler?: string | undefined
  correlationId?: string | undefined
  reason?: DeadLetterReason | undefined
  /** As a group of failures that are alike has it. */
  fingerprint?: string | undefined
  type?: string | undefined
  /** Only those that failed at or after this time. */
  since?: Date | undefined
}

export interface ListHandlerLetters extends HandlerLetterFilter {
  /** Default: all. */
  state?: DeadLetterState | undefined
  /** Default 100, at most 10 000. */
  limit?: number | undefined
  /** Only those that come after this one: the last of the page before. */
  after?: Pick<HandlerLetter, 'handler' | 'position'> | undefined
}

/** Failures of one handler that are alike, whatever numbers and ids their messages have. */
export interface LetterGroup {
  readonly handler: string
  readonly fingerprint: string
  readonly count: number
  /** Of the latest. */
  readonly reason: DeadLetterReason
  readonly latestError: KeptError
  readonly firstFailedAt: Date
  readonly lastFailedAt: Date
}

export interface HandlerLetters {
  /** A page of them, by handler and position. */
  list(options?: ListHandlerLetters): Promise<HandlerLetter[]>
  /** Those that are alike together, the largest group first. Of letters in one state: open, unless told. */
  groups(options?: {
    handler?: string | undefined
    state?: DeadLetterState | undefined
    /** Default 100. */
    limit?: number | undefined
  }): Promise<LetterGroup[]>
  /** One with its event as stored, its errors and its history. */
  show(handler: string, eventId: string): Promise<HandlerLetterDetails>
  /** Asks for one open letter, with other data than its event has if that is given. */
  retry(handler: string, eventId: string, options?: { data?: unknown }): Promise<RetryRequest>
  /** Asks for all open letters that match, at most `perSecond` (default 50) of them. */
  retryAll(
    filter?: HandlerLetterFilter & Pick<RetryFilter, 'limit'>,
    options?: { perSecond?: number | undefined },
  ): Promise<RetryRequest>
  /** Closes an open letter without running its handler. */
  resolve(handler: string, eventId: string, note: string): Promise<void>
}

export function openHandlerLetters(log: Log, onRequest: () => void): HandlerLetters {
  const kind = ofHandlers(log)
  return {
    async list({ handler, after, ...options } = {}) {
      const consumer = handler === undefined ? undefined : consumerOf(handler)
      const from = after === undefined ? undefined : { consumer: consumerOf(after.handler), position: after.position }
      return (await listDeadLetters(log, { ...options, consumer, after: from }, true)).map(ofHandler)
    },
    groups: async (options = {}) => groupLetters(log, options),
    show: async (handler, eventId) => ofHandler(await showDeadLetter(log, consumerOf(handler), eventId)),
    async retry(handler, eventId, options = {}) {
      const consumer = consumerOf(handler)
      const edited = 'data' in options ? await editedData(log, consumer, eventId, options.data) : undefined
      await retryOne(log, kind, consumer, eventId, edited)
      const isRunning = (await kind.isServed(consumer)) ?? false
      onRequest()
      return { requested: 1, isRunning }
    },
    async retryAll({ handler, ...filter } = {}, { perSecond = defaultPerSecond } = {}) {
      checkRate(perSecond)
      const consumer = handler === undefined ? undefined : consumerOf(handler)
      const requested = await requestMatching(log, kind, consumer, filter, perSecond)
      const isRunning = consumer === undefined ? await isAnyoneThere(log) : await kind.isServed(consumer)
      if (consumer !== undefined && isRunning === undefined && requested === 0) await refuseUnknown(kind, consumer)
      if (requested > 0) onRequest()
      return { requested, isRunning: isRunning ?? false }
    },
    resolve: (handler, eventId, note) => resolveOne(log, kind, consumerOf(handler), eventId, note),
  }
}

/**
 * How dead letters of handlers are retried: by an execution, in any runner that has the newest version of the handler.
 * Those of a workflow that was cancelled or undone are not: nothing of it is run.
 */
export function ofHandlers(log: Log): DeadLetterKind {
  const names = workflowNames(log)
  return {
    prefix,
    mayRetry: fragment`not exists (
        select
        from ${names.workflows} as w
        where w.correlation_id = d.correlation_id
          and w.state <> 'active')`,
    isAbandoned: fragment`not exists (
        select
        from ${names.workflow_executions} as x
        where x.id = d.execution
          and x.is_letter)`,
    async isServed(consumer) {
      const sign = log.database.soleUser ?? null
      const [row] = await log.database.run<{ served: boolean }>(sql`/* workflows.is_served */
        select r.paused_at is null
          and exists (
            select
            from ${names.workflow_workers} as w
            where r.id = any(w.routes)
              and w.heartbeat_at > ${log.names.clock}(w.heartbeat_at) - make_interval(secs => w.lease_ms / 1000.0)
              and (${sign}::text is null or split_part(w.owner, '/', 1) = ${sign}::text)) as served
        from ${names.workflow_routes} as r
        where r.handler = ${handlerNameOf(consumer)}::text
          and r.retired_at is null
        order by r.version desc
        limit 1`)
      return row?.served
    },
    async names() {
      const rows = await log.database.run<{ handler: string }>(sql`/* workflows.handler_names */
        select distinct handler
        from ${names.workflow_routes}
        limit 1000`)
      return rows.map(row => consumerOf(row.handler))
    },
    async whyNot(correlationId) {
      const [row] = await log.database.run<{ state: string }>(sql`/* workflows.state */
        select state
        from ${names.workflows}
        where correlation_id = ${correlationId}::text`)
      if (row === undefined || row.state === 'active') return undefined
      return new WorkflowNotActive({ correlationId, state: row.state, wanted: 'its dead letters can only be resolved' })
    },
  }
}

async function refuseUnknown(kind: DeadLetterKind, consumer: string): Promise<void> {
  const names = await kind.names()
  if (!names.includes(consumer)) throw new ConsumerNotFound({ consumer, nearest: nearestName(consumer, names) })
}

function ofHandler<L extends DeadLetter>(letter: L): L & HandlerLetter {
  const found = Object.assign(letter, { handler: handlerNameOf(letter.consumer) })
  return found as L & HandlerLetter
}

/** Checked as an event of its type is when it is appended: what is tried is in the newest shape. */
async function editedData(log: Log, consumer: string, eventId: string, data: unknown): Promise<EditedData> {
  const { type } = await showDeadLetter(log, consumer, eventId)
  const checks: Promise<void>[] = []
  const checked = checkEvent(log, { type, data }, {}, checks)
  await Promise.all(checks)
  return { type, data: checked.data, schemaVersion: checked.schemaVersion }
}

async function groupLetters(
  log: Log,
  { handler, state = 'open', limit = 100 }: NonNullable<Parameters<HandlerLetters['groups']>[0]>,
): Promise<LetterGroup[]> {
  checkState(state)
  checkWhole('limit', limit, 1, 10_000)
  const consumer = handler === undefined ? null : consumerOf(handler)
  const rows = await log.database.run<{
    consumer: string
    fingerprint: string
    reason: DeadLetterReason
    error: Omit<KeptError, 'at'> & { at: string }
    first_failed_at: Date
    last_failed_at: Date
    count: number
  }>(sql`/* dead_letters.groups */
    select *
    from (
      select distinct on (consumer, fingerprint)
        consumer, fingerprint, reason, errors -> -1 as error,
        min(first_failed_at) over alike as first_failed_at,
        max(last_failed_at) over alike as last_failed_at,
        count(*) over alike as count
      from ${consumerNames(log).dead_letters} as d
      where execution is not null
        and state = ${state}::text
        and (${consumer}::text is null or consumer = ${consumer}::text)
      window alike as (partition by consumer, fingerprint)
      order by consumer, fingerprint, d.last_failed_at desc, d.position desc) as g
    order by count desc, last_failed_at desc
    limit ${limit}::integer`)
  return rows.map(row => ({
    handler: handlerNameOf(row.consumer),
    ...{ fingerprint: row.fingerprint, count: Number(row.count), reason: row.reason },
    latestError: { ...row.error, at: new Date(row.error.at) },
    ...{ firstFailedAt: row.first_failed_at, lastFailedAt: row.last_failed_at },
  }))
}

/** Whether any worker lives. */
async function isAnyoneThere(log: Log): Promise<boolean> {
  const sign = log.database.soleUser ?? null
  const [row] = await log.database.run<{ there: boolean }>(sql`/* workflows.is_anyone_there */
    select exists (
      select
      from ${workflowNames(log).workflow_workers} as w
      where w.heartbeat_at > ${log.names.clock}(w.heartbeat_at) - make_interval(secs => w.lease_ms / 1000.0)
        and (${sign}::text is null or split_part(w.owner, '/', 1) = ${sign}::text)) as there`)
  return row!.there
}
