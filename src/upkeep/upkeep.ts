/**
 * Upkeep: what keeps a store healthy over the years, and what brings it back when it is not.
 *
 *     retention   store.upkeep(), and a few times a day any process with a daemon or a worker
 *                 old rows ─► chunks, each a transaction ─► a report
 *     doctor      store.doctor(): looks, changes nothing, says what mends each finding
 *     backup      store.backup(): the folder of an embedded store, copied while nobody writes, with checksums
 *     restore     restoreBackup(): verified ─► copied beside ─► opened ─► cut at a position, if asked ─► put in its place
 *
 * Guarantees:
 * - Nothing is deleted that a consumer has still to read, that is open, or that retention does not name.
 * - A dry run changes nothing and counts what a run would take.
 * - Chunks take turns among all processes under one advisory lock; a call waits for its turn, the round of a process
 *   that finds another one at work leaves it to that one. Rows that somebody else has locked are passed over.
 * - A backup has every event that was acknowledged before it was asked for. A backup that is damaged is refused before
 *   anything is written, and what is interrupted leaves nothing in the place it was meant for.
 * - Positions never go back: a log that is cut goes on above the highest position it ever had.
 *
 * What can fail: a chunk, which is then rolled back; the next round goes on from there. A process's own round tells the logger and
 * tries again hours later.
 */

import { throwIfAborted } from '../core/lifecycle.ts'
import { openLoop } from '../core/loop.ts'
import type { InTurn, PruneOptions } from '../database/prune.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { pruneArchived } from './archived-streams.ts'
import { oldRowsOf, type RetentionOptions, retentionOf } from './retention.ts'
import { type Slowest, slowest } from './slowest.ts'

export interface UpkeepOptions {
  /** Change nothing, and tell what would go. Default false. */
  dryRun?: boolean | undefined
  signal?: AbortSignal | undefined
  /** Told after each chunk: the kind, and how many rows of it have gone so far. */
  onProgress?: ((progress: UpkeepProgress) => void) | undefined
}

export interface UpkeepProgress {
  readonly kind: UpkeepKind
  readonly rows: number
}

export type UpkeepKind = 'attempts' | 'idempotencyKeys' | 'deadLetters' | 'history' | 'archivedEvents'

/** How many rows of each kind went, or would go. */
export interface UpkeepReport extends Readonly<Record<UpkeepKind, number>> {
  readonly isDryRun: boolean
  /** The streams that `archivedEvents` are of. */
  readonly archivedStreams: number
  /** Who has read least of the log: events beyond its position stay. Undefined if nobody follows it. */
  readonly slowest: Slowest | undefined
}

export interface Upkeep {
  run(options?: UpkeepOptions): Promise<UpkeepReport>
  /** Keeps up by itself until the function returned is called; however many ask for it, once. */
  tend(firstWithinMs?: number): () => void
  /** Waits for a round that is under way, after telling it to end. */
  stop(): Promise<void>
}

const hourMs = 60 * 60_000
/** Retention counts in days, and a process may have hundreds of tenants: four rounds a day are enough. */
export const everyMs: number = 6 * hourMs

export function openUpkeep(log: Log, options: RetentionOptions | undefined): Upkeep {
  const retention = retentionOf(options)
  let tending = 0
  const loop = openLoop({
    look: async signal => {
      const report = await run({ signal }, false)
      log.telemetry.log.info({ schema: log.schema, ...report }, 'old rows were deleted')
      return undefined
    },
    pollMs: everyMs,
    jitter: 0.5,
    backoff: { baseMs: everyMs, factor: 1, maxMs: everyMs, jitter: 0.5 },
    onFailure: error => log.telemetry.log.warn({ schema: log.schema, error }, 'old rows could not be deleted'),
    unref: true,
    clock: log.clock,
  })

  const run = async (given: UpkeepOptions, isPatient: boolean): Promise<UpkeepReport> => {
    const { dryRun = false, signal, onProgress } = given
    const inTurn = turns(log, isPatient)
    const optionsOf = (kind: UpkeepKind): Omit<PruneOptions, 'olderThanMs'> & { readonly inTurn: InTurn } => {
      let rows = 0
      const onChunk = (count: number): void => {
        rows += count
        onProgress?.({ kind, rows })
      }
      return { dryRun, signal, inTurn, onChunk }
    }
    const { attempts, idempotencyKeys, deadLetters, history } = oldRowsOf(log, retention)
    const report = {
      isDryRun: dryRun,
      attempts: await attempts(optionsOf('attempts')),
      idempotencyKeys: await idempotencyKeys(optionsOf('idempotencyKeys')),
      deadLetters: await deadLetters(optionsOf('deadLetters')),
      history: await history(optionsOf('history')),
    }
    const olderThanMs = retention.archivedStreamsMs
    const archived = await pruneArchived(log, { ...optionsOf('archivedEvents'), olderThanMs })
    throwIfAborted(signal)
    const { streams, events } = archived
    return { ...report, archivedStreams: streams, archivedEvents: events, slowest: await slowest(log) }
  }

  return {
    async run(given = {}) {
      log.database.refuseInsideTransaction('upkeep')
      throwIfAborted(given.signal)
      return run(given, true)
    },
    tend(firstWithinMs = hourMs) {
      // Not all at once, when many processes were started together; and not among what a process does at its start.
      if (tending++ === 0) loop.lookIn(firstWithinMs * (0.1 + 0.9 * Math.random()))
      let isOver = false
      return () => {
        if (isOver) return
        isOver = true
        if (tending > 0 && --tending === 0) loop.rest()
      }
    },
    async stop() {
      tending = 0
      await loop.stop()
    },
  }
}

/** Runs chunks one after the other among all processes. One without patience gives up if it is another's turn. */
function turns({ database, names }: Log, isPatient: boolean): InTurn {
  const key = names.idempotency_keys.quoted
  return work =>
    database.transaction(async tx => {
      if (isPatient)
        await tx.run(sql`/* upkeep.wait */
          select pg_advisory_xact_lock(${key}::regclass::oid::bigint)`)
      else {
        const [row] = await tx.run<{ taken: boolean }>(sql`/* upkeep.try */
          select pg_try_advisory_xact_lock(${key}::regclass::oid::bigint) as taken`)
        if (!row!.taken) return undefined
      }
      return work(tx)
    })
}
