/**
 * Whether the store can be worked with: the database answers, the schema is what it should be, nobody is too far behind.
 *
 *     ready ─ database away, drift, lag ─► not ready ─ all is well ─► ready        each change is told to the logger
 *
 * The answer has words and no data: it is given to anybody. What exactly is wrong, and with whom, is in the log, and the lag
 * of each consumer in the metrics. One that is paused, inline or being rebuilt is as far behind as somebody wants it.
 */
import type { Clock } from '../core/clock.ts'
import { isRillflowError } from '../core/errors.ts'
import { abortable, type Deadline, deadline } from '../core/lifecycle.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import type { Schema } from '../schema/schema.ts'
import type { ConsumerFigures, StoredFigures } from './stored-metrics.ts'

export interface LagLimits {
  /** How long the first event after a checkpoint may have been waiting. Default 300 000. */
  maxLagMs?: number | undefined
  /** How many positions a consumer may be behind the head of the log. Default: any number. */
  maxLagEvents?: number | undefined
}

export interface HealthOptions extends LagLimits {
  /** Other limits for some consumers, by name. `Infinity` leaves one out. */
  lagLimits?: Readonly<Record<string, LagLimits>> | undefined
}

export type Reason = 'database_unreachable' | 'schema_drift' | 'consumer_lag'

export interface HealthSource {
  readonly log: Log
  readonly schema: Schema
}

interface Judgement {
  readonly reasons: readonly Reason[]
  readonly details: object
}

/** A schema that was found right is looked at again after this long: the look costs a few dozen milliseconds. */
const driftEveryMs = 30_000
/** A database that has not answered by then counts as gone. */
const answerMs = 5_000

/** Each call of the function returned looks again. */
export function healthCheck(
  { log, schema }: HealthSource,
  figures: () => Promise<StoredFigures>,
  options: HealthOptions,
): () => Promise<readonly Reason[]> {
  let soundAt = Number.NEGATIVE_INFINITY
  let before = ''

  return async () => {
    const { reasons, details } = await look()
    const now = reasons.join(', ')
    if (now !== before && now !== '')
      log.telemetry.log.warn({ schema: log.schema, reasons, ...details }, 'the store is not ready')
    if (now !== before && now === '') log.telemetry.log.info({ schema: log.schema }, 'the store is ready again')
    before = now
    return reasons
  }

  async function look(): Promise<Judgement> {
    const { signal, dispose } = answerDeadline(log.clock)
    try {
      return await abortable(judge(), signal)
    } catch (error) {
      return { reasons: [isMissing(error) ? 'schema_drift' : 'database_unreachable'], details: { error } }
    } finally {
      dispose()
    }
  }

  async function judge(): Promise<Judgement> {
    await log.database.run(sql`/* server.ping */ select 1`)
    const problems = await drift()
    if (problems.length > 0) return { reasons: ['schema_drift'], details: { problems } }
    const { consumers } = await figures()
    const behind = consumers.filter(each => isBehind(each, options))
    return { reasons: behind.length > 0 ? ['consumer_lag'] : [], details: { consumers: behind } }
  }

  async function drift(): Promise<readonly unknown[]> {
    const now = log.clock.now().getTime()
    if (now - soundAt < driftEveryMs) return []
    const { ok, problems } = await schema.check()
    if (ok) soundAt = now
    return problems
  }
}

function isBehind({ name, state, isPaused, lag, lagSeconds }: ConsumerFigures, options: HealthOptions): boolean {
  if (isPaused || state !== 'active') return false
  const own = options.lagLimits?.[name] ?? {}
  const maxLagMs = own.maxLagMs ?? options.maxLagMs ?? 300_000
  const maxLagEvents = own.maxLagEvents ?? options.maxLagEvents ?? Number.POSITIVE_INFINITY
  return lagSeconds * 1000 > maxLagMs || lag > maxLagEvents
}

/** A database that is silent must not keep whoever asks waiting for longer than they will. */
export function answerDeadline(clock: Clock | undefined): Deadline {
  return deadline(undefined, answerMs, { what: 'The answer of the database', clock })
}

/** No such schema, table, column or function: what a statement of ours does not find is not there. */
function isMissing(error: unknown): boolean {
  const { sqlState = '' } = error as { sqlState?: string }
  return isRillflowError(error, 'database_failed') && /^(3F000|42P01|42703|42883)$/.test(sqlState)
}
