/**
 * Snapshots in the background, by a consumer that follows the events of one category: it writes one whenever a stream is
 * `threshold` events ahead of its last one.
 *
 *     const snapshotter = store.snapshotter(Order, { threshold: 100 })     runs in a daemon from now on
 *     await snapshotter.runUntilIdle()                                     or by hand
 *
 * Each event of the log is looked at once, so it ends, also where a stream cannot be folded: that is told to the logger,
 * and the stream stays without a snapshot. What is written is folded by the aggregate's own code from the events that are
 * there, and nothing else is ever written.
 */

import { type BatchContext, type Consumer, type ConsumerOptions, consumer } from '../consumers/consumer.ts'
import type { Consumers } from '../consumers/consumers.ts'
import { logAndSkip } from '../consumers/run/policy.ts'
import { runUntilIdle, type Tick, type TickOptions, tickOnce } from '../consumers/run/tick.ts'
import { InvalidOption } from '../core/errors.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Aggregate } from './aggregate.ts'
import { type LoadParts, loadState } from './load.ts'
import { aggregateNames } from './schema.ts'
import { freeze, type Snapshot, writeSnapshots } from './snapshot.ts'

export interface SnapshotterOptions extends Pick<ConsumerOptions, 'leaseMs' | 'timeoutMs' | 'policy'> {
  /** How many events a stream may be ahead of its snapshot. Default 100. */
  threshold?: number | undefined
  /** The most events looked at in one transaction. Default 100. */
  batch?: number | undefined
}

export interface Snapshotter {
  /** The consumer's name: `snapshotter-order`. */
  readonly name: string
  /** One batch. */
  compactOnce(options?: TickOptions): Promise<Tick & { readonly written: number }>
  /** Batches until nothing is left that could be done now; returns how many snapshots were written. */
  runUntilIdle(options?: TickOptions): Promise<number>
  metrics(): Promise<SnapshotterMetrics>
  /** Takes it out of this store again. */
  unregister(): void
}

export interface SnapshotterMetrics {
  /** Streams that are at least the threshold ahead of their snapshot. */
  readonly candidates: number
  /** How far the stream is ahead that is furthest ahead. */
  readonly maxGap: number
  /** Snapshots written by this snapshotter, in this process. */
  readonly written: number
}

export function openSnapshotter(
  parts: LoadParts & { readonly consumers: Consumers },
  aggregate: Aggregate,
  options: SnapshotterOptions,
): Snapshotter {
  const { threshold = 100, batch = 100, leaseMs, timeoutMs, policy = logAndSkip() } = options
  if (!Number.isSafeInteger(threshold) || threshold < 1)
    throw new InvalidOption({ option: 'threshold', reason: `must be a whole number from 1, not ${String(threshold)}` })
  if (aggregate.snapshots === 'none')
    throw new InvalidOption({ option: 'aggregate', reason: `"${aggregate.name}" has no snapshot and hydrate` })
  const { consumers, log } = parts
  const name = `snapshotter-${aggregate.name}`
  let written = 0
  const handle = async (events: readonly RecordedEvent[], ctx: BatchContext): Promise<void> => {
    const snapshots = await foldDue(parts, aggregate, threshold, events, ctx)
    const count = await writeSnapshots(log, ctx.tx, aggregate, snapshots)
    ctx.tx.afterCommit(() => {
      written += count
    })
  }
  const filter = { categories: [aggregate.name] }
  const snapshotter: Consumer = consumer(
    { name, kind: 'snapshotter', filter, handle },
    { batchSize: batch, leaseMs, timeoutMs, policy },
  )
  const unregister = consumers.register(snapshotter)
  return {
    name,
    async compactOnce(given) {
      const before = written
      const tick = await tickOnce(consumers, snapshotter, given)
      return { ...tick, written: written - before }
    },
    async runUntilIdle(given) {
      const before = written
      await runUntilIdle(consumers, [snapshotter], given)
      return written - before
    },
    metrics: async () => ({ ...(await readGaps(parts, aggregate, threshold)), written }),
    unregister,
  }
}

async function foldDue(
  parts: LoadParts,
  aggregate: Aggregate,
  threshold: number,
  events: readonly RecordedEvent[],
  ctx: BatchContext,
): Promise<Snapshot[]> {
  const last = new Map(events.map(event => [event.stream, event]))
  const due = await findDue(parts, ctx.tx, aggregate, threshold, [...last.keys()])
  const snapshots: Snapshot[] = []
  for (const { stream, version } of due) {
    // The one that fails is passed over; what the others fold to is kept.
    ctx.at(last.get(stream))
    const { state, eventId } = await loadState(parts, aggregate, stream, ctx.tx, { version })
    snapshots.push({ stream, version, eventId: eventId!, text: freeze(aggregate, stream, state) })
  }
  ctx.at(undefined)
  return snapshots
}

/** Folded at once by one batch; a stream that is further ahead gets there in several. */
const mostFolded = 20_000

async function findDue(
  { log }: LoadParts,
  executor: Executor,
  { stateVersion }: Aggregate,
  threshold: number,
  streams: readonly string[],
): Promise<{ stream: string; version: number }[]> {
  const rows = await executor.run<{ stream: string; version: number }>(sql`/* snapshots.due */
    select s.stream, least(s.version, coalesce(n.version, 0) + ${mostFolded}::bigint) as version
    from ${log.names.streams} as s
    left join ${aggregateNames(log).snapshots} as n
      on n.stream = s.stream
      and n.state_version = ${stateVersion}::integer
    where s.stream = any(${streams}::text[])
      and s.archived_at is null
      and s.tombstoned_at is null
      and s.version - coalesce(n.version, 0) >= ${threshold}::bigint
    order by s.stream`)
  return rows.map(({ stream, version }) => ({ stream, version: Number(version) }))
}

async function readGaps(
  { log }: LoadParts,
  { name, stateVersion }: Aggregate,
  threshold: number,
): Promise<Pick<SnapshotterMetrics, 'candidates' | 'maxGap'>> {
  // By bytes, "." is what follows "-": between them lie the streams of the category.
  const [row] = await log.database.run<{ candidates: number; gap: number }>(sql`/* snapshots.gaps */
    select
      count(*) filter (where s.version - coalesce(n.version, 0) >= ${threshold}::bigint) as candidates,
      coalesce(max(s.version - coalesce(n.version, 0)), 0) as gap
    from ${log.names.streams} as s
    left join ${aggregateNames(log).snapshots} as n
      on n.stream = s.stream
      and n.state_version = ${stateVersion}::integer
    where s.stream >= ${name}::text
      and s.stream < ${`${name}.`}::text
      and (s.stream = ${name}::text or s.stream >= ${`${name}-`}::text)
      and s.archived_at is null
      and s.tombstoned_at is null`)
  return { candidates: Number(row!.candidates), maxGap: Number(row!.gap) }
}
