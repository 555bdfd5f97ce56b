/**
 * How long executions have waited and run in this process lately: quantiles of its histograms, of the executions between
 * two readings at most half a minute apart. It costs no statement. Another process has its own histograms, so a server
 * without a runner in its process has none.
 */
import type { Family } from '../../telemetry/metrics.ts'
import type { HandlerTimes } from './contract.ts'

/** Long enough that a few executions a second give a steady line. */
const windowMs = 30_000

/** By the upper limit of a bucket in seconds: the observations in it and in all smaller ones. */
type Buckets = ReadonlyMap<number, number>

interface Snapshot {
  readonly at: number
  readonly queued: Buckets
  readonly ran: Buckets
}

/** Returns a function that takes the next reading. */
export function openHandlerTimes(): (families: readonly Family[], at: Date) => HandlerTimes | undefined {
  let snapshots: Snapshot[] = []
  return (families, at) => {
    const now = { at: at.getTime(), ...bucketsOf(families) }
    // The last one before the window stays: the difference to it covers the whole window.
    while (snapshots.length > 1 && now.at - snapshots[1]!.at >= windowMs) snapshots = snapshots.slice(1)
    snapshots.push(now)
    const from = snapshots[0]!
    const queued = difference(now.queued, from.queued)
    const ran = difference(now.ran, from.ran)
    if (totalOf(ran) === 0) return undefined
    return {
      queuedP95Ms: quantile(queued, 0.95),
      ranP50Ms: quantile(ran, 0.5),
      ranP95Ms: quantile(ran, 0.95),
    }
  }
}

function bucketsOf(families: readonly Family[]): { readonly queued: Buckets; readonly ran: Buckets } {
  return { queued: sumOf(families, 'execution_queue_seconds'), ran: sumOf(families, 'execution_run_seconds') }
}

/** All handlers together. */
function sumOf(families: readonly Family[], name: string): Buckets {
  const sums = new Map<number, number>()
  for (const { suffix, labels, value } of families.find(family => family.name === name)?.samples ?? []) {
    if (suffix !== '_bucket') continue
    const limit = labels.le === '+Inf' ? Number.POSITIVE_INFINITY : Number(labels.le)
    sums.set(limit, (sums.get(limit) ?? 0) + value)
  }
  return sums
}

function difference(now: Buckets, before: Buckets): Buckets {
  return new Map([...now].map(([limit, count]) => [limit, count - (before.get(limit) ?? 0)]))
}

function totalOf(buckets: Buckets): number {
  return buckets.get(Number.POSITIVE_INFINITY) ?? 0
}

/** Within a bucket the observations count as spread evenly; beyond the last limit there is only that limit. */
function quantile(buckets: Buckets, share: number): number {
  const wanted = totalOf(buckets) * share
  let [lower, below] = [0, 0]
  for (const [limit, count] of [...buckets].sort(([a], [b]) => a - b)) {
    if (count >= wanted && count > below) {
      if (limit === Number.POSITIVE_INFINITY) return lower * 1000
      return (lower + ((limit - lower) * (wanted - below)) / (count - below)) * 1000
    }
    lower = limit
    below = count
  }
  return 0
}
