/**
 * Whether the store is ready: the database answers, the schema is as it should be, and no consumer is too far behind, or
 * beyond the end of the log.
 *
 *     ready ── database away, drift, lag, beyond ──► not ready ── none of them ──► ready         each change is logged
 *
 * The answer has words and no data, because it is open to all. The log has the details, and the metrics have the lag of
 * each consumer. A consumer that is paused, inline or being rebuilt is not considered to be behind. One that is orphaned,
 * because no process has its code, does not count at all: no process could mend that.
 */
import type { Consumers } from '../consumers/consumers.ts'
import type { ConsumerMetrics } from '../consumers/insight.ts'
import { abortable, type Deadline, deadline } from '../core/abort.ts'
import type { Clock } from '../core/clock.ts'
import { isRillflowError } from '../core/errors.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import type { Schema } from '../schema/schema.ts'
import type { StoredMetrics } from './stored-metrics.ts'

export interface LagLimits {
  /** How long the first event after a checkpoint may have been waiting. Default 300 000. */
  maxLagMs?: number | undefined
  /** How many positions a consumer may be behind the head of the log. Default: any number. */
  maxLagEvents?: number | undefined
}

export interface HealthOptions extends LagLimits {
  /** Other limits for some consumers, by name. `Infinity` exempts a consumer. */
  lagLimits?: Readonly<Record<string, LagLimits>> | undefined
}

export type Reason = 'database_unreachable' | 'schema_drift' | 'consumer_lag' | 'checkpoint_beyond_head'

export interface HealthSource {
  readonly log: Log
  readonly schema: Schema
  readonly consumers: Pick<Consumers, 'hasCodeFor'>
}

interface Assessment {
  readonly reasons: readonly Reason[]
  readonly details: object
}

/** A schema that was in order is checked again after this time: the check costs a few dozen milliseconds. */
const driftEveryMs = 30_000
/** A database that has not answered by then is considered unreachable. */
const answerMs = 5_000

/** Each call of the function returned looks again. */
export function openHealthCheck(
  { log, schema, consumers: registered }: HealthSource,
  metrics: () => Promise<StoredMetrics>,
  options: HealthOptions,
): () => Promise<readonly Reason[]> {
  let inOrderAt = Number.NEGATIVE_INFINITY
  let before = ''

  return async () => {
    const { reasons, details } = await assess()
    const now = reasons.join(', ')
    if (now !== before && now !== '')
      log.telemetry.log.warn({ schema: log.schema, reasons, ...details }, 'The store is not ready.')
    if (now !== before && now === '') log.telemetry.log.info({ schema: log.schema }, 'The store is ready again.')
    before = now
    return reasons
  }

  async function assess(): Promise<Assessment> {
    const { signal, dispose } = answerDeadline(log.clock)
    try {
      return await abortable(look(), signal)
    } catch (error) {
      // Dropped, or moved to a server that this process does not know: it is not watched from now on.
      if (isRillflowError(error, 'tenant_not_found')) return { reasons: [], details: {} }
      return { reasons: [isMissingObject(error) ? 'schema_drift' : 'database_unreachable'], details: { error } }
    } finally {
      dispose()
    }
  }

  async function look(): Promise<Assessment> {
    await log.database.run(sql`/* server.ping */ select 1`)
    const problems = await readDrift()
    if (problems.length > 0) return { reasons: ['schema_drift'], details: { problems } }
    const { consumers } = await metrics()
    const watched = consumers.filter(each => !each.isUnseen || registered.hasCodeFor(each))
    const behind = watched.filter(each => isBehind(each, options))
    const beyond = watched.filter(each => each.isBeyondHead)
    const reasons: Reason[] = []
    if (behind.length > 0) reasons.push('consumer_lag')
    if (beyond.length > 0) reasons.push('checkpoint_beyond_head')
    return { reasons, details: { consumers: [...behind, ...beyond] } }
  }

  async function readDrift(): Promise<readonly unknown[]> {
    const now = log.clock.now().getTime()
    if (now - inOrderAt < driftEveryMs) return []
    const { isHealthy, problems } = await schema.check()
    if (isHealthy) inOrderAt = now
    return problems
  }
}

function isBehind({ name, state, isPaused, lag, lagSeconds }: ConsumerMetrics, options: HealthOptions): boolean {
  if (isPaused || state !== 'active') return false
  const own = options.lagLimits?.[name] ?? {}
  const maxLagMs = own.maxLagMs ?? options.maxLagMs ?? 300_000
  const maxLagEvents = own.maxLagEvents ?? options.maxLagEvents ?? Number.POSITIVE_INFINITY
  return lagSeconds * 1000 > maxLagMs || lag > maxLagEvents
}

/** Limits how long a request waits for a database that does not answer. */
export function answerDeadline(clock: Clock | undefined): Deadline {
  return deadline(undefined, answerMs, { what: 'The answer of the database', clock })
}

/** A statement of ours has found no such schema, table, column or function. */
function isMissingObject(error: unknown): boolean {
  const { sqlState = '' } = error as { sqlState?: string }
  return isRillflowError(error, 'database_failed') && /^(3F000|42P01|42703|42883)$/.test(sqlState)
}
