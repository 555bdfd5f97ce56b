/**
 * Upkeep: deletes data that is no longer needed, and finds the problems of a store.
 *
 *     retention   store.upkeep(), and a few times a day every process with a runner
 *                 old rows ─► chunks, each a transaction ─► a report
 *     doctor/     store.doctor(): looks, changes nothing, and says how to fix each problem
 *
 * Guarantees:
 * - Nothing is deleted that a consumer has still to read, that is open, or that the retention does not name.
 * - A dry run changes nothing and counts the rows that a run would delete.
 * - Chunks of all processes take turns under one advisory lock. A call of `store.upkeep()` waits for its turn; a background
 *   round that finds another process at work leaves the work to that process. Rows that others have locked are skipped.
 *
 * What can fail: a chunk, which is then rolled back; the next round continues from there. A background round that fails
 * is logged and tried again hours later.
 */

import { throwIfAborted } from '../core/abort.ts'
import { chance } from '../core/host.ts'
import { openLoop } from '../core/loop.ts'
import type { InTurn, PruneOptions } from '../database/prune.ts'
import { sql } from '../database/sql.ts'
import { type Log, whereLogIs } from '../events/log.ts'
import { pruneArchivedStreams, readSlowest, type SlowestReader } from './archived-streams.ts'
import { pruneKinds, type RetentionOptions, retentionOf } from './retention.ts'

export interface UpkeepOptions {
  /** Changes nothing, and reports the rows that would be deleted. Default false. */
  dryRun?: boolean | undefined
  signal?: AbortSignal | undefined
  /** Called after each chunk with the kind, and with how many rows of it were deleted so far. */
  onProgress?: ((progress: UpkeepProgress) => void) | undefined
}

export interface UpkeepProgress {
  readonly kind: UpkeepKind
  readonly rows: number
}

export type UpkeepKind = 'attempts' | 'idempotencyKeys' | 'deadLetters' | 'audit' | 'history' | 'archivedEvents'

/** How many rows of each kind were deleted, or would be. */
export interface UpkeepReport extends Readonly<Record<UpkeepKind, number>> {
  readonly isDryRun: boolean
  /** The number of streams that `archivedEvents` belong to. */
  readonly archivedStreams: number
  /** The reader that is furthest behind: events after its position are kept. Undefined if nothing follows the log. */
  readonly slowest: SlowestReader | undefined
}

export interface Upkeep {
  run(options?: UpkeepOptions): Promise<UpkeepReport>
  /** Starts background rounds, until the function returned is called. They run once, however many callers ask for them. */
  start(firstWithinMs?: number): () => void
  /** Stops all background rounds, and waits for one that is running. */
  stop(): Promise<void>
}

const hourMs = 60 * 60_000
/** Retention counts in days, and a process may have hundreds of tenants: four rounds a day are enough. */
export const everyMs: number = 6 * hourMs

export function openUpkeep(log: Log, options: RetentionOptions | undefined): Upkeep {
  const retention = retentionOf(options)
  let users = 0
  const loop = openLoop({
    look: async signal => {
      const report = await run({ signal }, false)
      log.telemetry.log.info({ schema: log.schema, ...report }, 'Old rows were deleted.')
      return undefined
    },
    pollMs: everyMs,
    jitter: 0.5,
    backoff: { baseMs: everyMs, factor: 1, maxMs: everyMs, jitter: 0.5 },
    onFailure: error =>
      log.telemetry.log.warn(
        { schema: log.schema, error },
        'Old rows could not be deleted. The next round is in hours.',
      ),
    unref: true,
    clock: log.clock,
  })

  const run = async (given: UpkeepOptions, waitsForTurn: boolean): Promise<UpkeepReport> => {
    const { dryRun = false, signal, onProgress } = given
    const inTurn = turnsOf(log, waitsForTurn)
    const optionsOf = (kind: UpkeepKind): Omit<PruneOptions, 'olderThanMs'> & { readonly inTurn: InTurn } => {
      let rows = 0
      const onChunk = (count: number): void => {
        rows += count
        onProgress?.({ kind, rows })
      }
      return { dryRun, signal, inTurn, onChunk }
    }
    const { attempts, idempotencyKeys, deadLetters, audit, history } = pruneKinds(log, retention)
    const report = {
      isDryRun: dryRun,
      attempts: await attempts(optionsOf('attempts')),
      idempotencyKeys: await idempotencyKeys(optionsOf('idempotencyKeys')),
      deadLetters: await deadLetters(optionsOf('deadLetters')),
      audit: await audit(optionsOf('audit')),
      history: await history(optionsOf('history')),
    }
    const olderThanMs = retention.archivedStreamsMs
    const archived = await pruneArchivedStreams(log, { ...optionsOf('archivedEvents'), olderThanMs })
    throwIfAborted(signal)
    const { streams, events } = archived
    return { ...report, archivedStreams: streams, archivedEvents: events, slowest: await readSlowest(log) }
  }

  return {
    async run(given = {}) {
      log.database.refuseInsideTransaction('upkeep')
      throwIfAborted(given.signal)
      return run(given, true)
    },
    start(firstWithinMs = hourMs) {
      // At a random time, because many processes may start together, and not during the start of this one.
      if (users++ === 0) loop.lookIn(firstWithinMs * (0.1 + 0.9 * chance()))
      let hasEnded = false
      return () => {
        if (hasEnded) return
        hasEnded = true
        if (users > 0 && --users === 0) loop.rest()
      }
    },
    async stop() {
      users = 0
      await loop.stop()
    },
  }
}

/** Runs the chunks of all processes one after the other. Without waiting, a chunk is not run while another has the turn. */
function turnsOf(log: Log, waits: boolean): InTurn {
  const { database, names } = log
  const key = names.idempotency_keys.quoted
  return work =>
    database.transaction(async tx => {
      if (waits)
        await tx.run(sql`/* upkeep.wait */
          select pg_advisory_xact_lock(${key}::text::regclass::oid::bigint)::text
          from ${whereLogIs(log)}`)
      else {
        const [row] = await tx.run<{ taken: boolean }>(sql`/* upkeep.try */
          select pg_try_advisory_xact_lock(${key}::text::regclass::oid::bigint) as taken
          from ${whereLogIs(log)}`)
        if (!row!.taken) return undefined
      }
      return work(tx)
    })
}
