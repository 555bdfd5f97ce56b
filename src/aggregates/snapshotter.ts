/**
 * Snapshots in the background: a consumer that follows the events of one category and writes a snapshot whenever a stream
 * is `every` events ahead of its last one.
 *
 *     const Order = defineAggregate('order', { …, snapshots: { every: 100, lifecycle: 'async' } })
 *     await store.start()                                     a runner writes them
 *     await store.snapshots(Order).runUntilIdle()             or by hand
 *
 * Guarantees:
 * - Each event of the log is read once, so it reaches the end, also where a stream cannot be folded: that is logged,
 *   and the stream stays without a snapshot.
 * - It writes only snapshots, which the aggregate's own code folds from the events of the log.
 * - When `every` is lowered or the version of the state is raised, streams that it has passed are due again. Both are stored
 *   with its checkpoint; it begins at the start of the log again, and streams with a new enough snapshot cost only a look.
 */

import { type BatchContext, type Consumer, consumer, ensureConsumer } from '../consumers/consumer.ts'
import type { Consumers } from '../consumers/consumers.ts'
import { change, move } from '../consumers/operator.ts'
import { type RunOptions, type RunResult, runOnce, runUntilIdle } from '../consumers/run/run.ts'
import { consumerNames } from '../consumers/schema.ts'
import { InvalidOption } from '../core/errors.ts'
import { refuseUnknownOptions } from '../core/options.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import type { Aggregate, SnapshotOptions } from './aggregate.ts'
import { type LoadParts, loadState } from './load.ts'
import { aggregateNames } from './schema.ts'
import { freeze, type Snapshot, writeSnapshots } from './snapshot.ts'

/** The background snapshots of one aggregate. */
export interface Snapshotter {
  /** The name of its consumer: `snapshotter-order`. */
  readonly name: string
  /** One batch. */
  runOnce(options?: RunOptions): Promise<RunResult & { readonly written: number }>
  /** Batches until it can write no snapshot now; returns how many were written. */
  runUntilIdle(options?: RunOptions): Promise<number>
  metrics(): Promise<SnapshotterMetrics>
  /** Removes it from this store, so that no runner of this process runs it. */
  unregister(): void
}

export interface SnapshotterMetrics {
  /** Streams that are at least `every` events ahead of their snapshot. */
  readonly candidates: number
  /** How far the stream is ahead that is furthest ahead. */
  readonly maxGap: number
  /** Snapshots written by this snapshotter, in this process. */
  readonly written: number
}

export interface Snapshotters {
  /** Registers the consumer of an aggregate with async snapshots; of any other aggregate there is nothing to run. */
  register(aggregate: Aggregate): void
  snapshots(aggregate: Aggregate): Snapshotter
}

export function openSnapshotters(parts: LoadParts & { readonly consumers: Consumers }): Snapshotters {
  const registered = new Map<string, { readonly snapshotter: Snapshotter; readonly aggregate: Aggregate }>()
  return {
    register(aggregate) {
      if (aggregate.snapshots?.lifecycle !== 'async') return
      const { consumer, snapshotter } = makeSnapshotter(parts, aggregate, aggregate.snapshots)
      const unregister = parts.consumers.register(consumer)
      registered.set(consumer.name, {
        aggregate,
        snapshotter: {
          ...snapshotter,
          unregister() {
            unregister()
            registered.delete(consumer.name)
          },
        },
      })
    },
    snapshots(aggregate) {
      const known = registered.get(nameOf(aggregate))
      if (known?.aggregate === aggregate) return known.snapshotter
      const { name, snapshots } = aggregate
      if (snapshots?.lifecycle === 'async') return makeSnapshotter(parts, aggregate, snapshots).snapshotter
      const reason = `Aggregate "${name}" has no snapshots in the background. Define it with snapshots: { every: 100, lifecycle: 'async' }.`
      throw new InvalidOption({ option: 'snapshots', reason })
    },
  }
}

function nameOf({ name }: Aggregate): string {
  return `snapshotter-${name}`
}

function makeSnapshotter(
  parts: LoadParts & { readonly consumers: Consumers },
  aggregate: Aggregate,
  { every, batchSize = 100, leaseMs, timeoutMs, retries = 0, onFailure = 'skip' }: SnapshotOptions,
): { readonly consumer: Consumer; readonly snapshotter: Snapshotter } {
  const { consumers, log } = parts
  const name = nameOf(aggregate)
  let written = 0
  const handle = async (events: readonly RecordedEvent[], ctx: BatchContext): Promise<void> => {
    const snapshots = await foldDue(parts, aggregate, every, events, ctx)
    const count = await writeSnapshots(log, ctx.tx, aggregate, snapshots)
    ctx.tx.afterCommit(() => {
      written += count
    })
  }
  const filter = { categories: [aggregate.name] }
  const options = { batchSize, leaseMs, timeoutMs, retries, onFailure }
  const following: Consumer = {
    ...consumer({ name, kind: 'snapshotter', filter, handle }, options),
    prepare: () => returnIfDue(log, following, { every, stateVersion: aggregate.stateVersion }),
  }
  const check = (call: string, given: RunOptions = {}): void => refuseUnknownOptions(call, given, ['signal'])
  return {
    consumer: following,
    snapshotter: {
      name,
      async runOnce(given) {
        check('runOnce', given)
        const before = written
        const result = await runOnce(consumers, following, given)
        return { ...result, written: written - before }
      },
      async runUntilIdle(given) {
        check('runUntilIdle', given)
        const before = written
        await runUntilIdle(consumers, [following], given)
        return written - before
      },
      metrics: async () => ({ ...(await readGaps(parts, aggregate, every)), written }),
      unregister: () => {},
    },
  }
}

/** The stored values that decide which streams are due. */
interface Threshold {
  readonly every: number
  readonly stateVersion: number
}

async function returnIfDue(log: Log, following: Consumer, threshold: Threshold): Promise<void> {
  await ensureConsumer(log, following, threshold)
  await log.database.transaction(async tx => {
    const [row] = await tx.run<{ definition: Partial<Threshold> }>(sql`/* snapshots.threshold */
      select definition
      from ${consumerNames(log).consumers}
      where name = ${following.name}::text
      for update`)
    const { every = threshold.every, stateVersion = threshold.stateVersion } = row?.definition ?? {}
    const isSame = row?.definition.every === threshold.every && row.definition.stateVersion === threshold.stateVersion
    if (row === undefined || isSame) return
    const isDueAgain = threshold.every < every || threshold.stateVersion > stateVersion
    if (isDueAgain) await move(log, following.name, { checkpoint: 0 }, tx)
    await change(log, [following.name], { definition: { ...threshold }, keepsHolder: true }, tx)
  })
}

async function foldDue(
  parts: LoadParts,
  aggregate: Aggregate,
  every: number,
  events: readonly RecordedEvent[],
  ctx: BatchContext,
): Promise<Snapshot[]> {
  const last = new Map(events.map(event => [event.stream, event]))
  const due = await findDue(parts, ctx.tx, aggregate, every, [...last.keys()])
  const snapshots: Snapshot[] = []
  for (const { stream, version } of due) {
    // A stream that fails is skipped; the snapshots of the others are written.
    ctx.at(last.get(stream))
    const { state, eventId } = await loadState(parts, aggregate, stream, ctx.tx, { version })
    snapshots.push({ stream, version, eventId: eventId!, text: freeze(aggregate, stream, state) })
  }
  ctx.at(undefined)
  return snapshots
}

/** Folded at once by one batch; a stream that is further ahead gets there in several. */
const maxFolded = 20_000

async function findDue(
  { log }: LoadParts,
  executor: Executor,
  { stateVersion }: Aggregate,
  every: number,
  streams: readonly string[],
): Promise<{ stream: string; version: number }[]> {
  const rows = await executor.run<{ stream: string; version: number }>(sql`/* snapshots.due */
    select s.stream, least(s.version, coalesce(n.version, 0) + ${maxFolded}::bigint) as version
    from ${log.names.streams} as s
    left join ${aggregateNames(log).snapshots} as n
      on n.stream = s.stream
      and n.state_version = ${stateVersion}::integer
    where s.stream = any(${streams}::text[])
      and s.archived_at is null
      and s.tombstoned_at is null
      and s.version - coalesce(n.version, 0) >= ${every}::bigint
    order by s.stream`)
  return rows.map(({ stream, version }) => ({ stream, version: Number(version) }))
}

async function readGaps(
  { log }: LoadParts,
  { name, stateVersion }: Aggregate,
  every: number,
): Promise<Pick<SnapshotterMetrics, 'candidates' | 'maxGap'>> {
  // By bytes "." follows "-": the streams of the category are between them.
  const [row] = await log.database.run<{ candidates: number; gap: number }>(sql`/* snapshots.gaps */
    select
      count(*) filter (where s.version - coalesce(n.version, 0) >= ${every}::bigint) as candidates,
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
