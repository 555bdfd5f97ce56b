/** The snapshots that the aggregates of the configuration have in the background. */
import type { SnapshotOptions } from '../../aggregates/aggregate.ts'
import type { Snapshotter } from '../../aggregates/snapshotter.ts'
import type { Config } from '../../config.ts'
import type { Store } from '../../store.ts'
import type { Invocation } from '../command.ts'
import { NothingRegistered } from '../usage.ts'

export const snapshotterOptions = {
  threshold: { kind: 'whole', value: 'COUNT', summary: 'How many events a stream may be ahead of its snapshot' },
  batch: { kind: 'whole', value: 'COUNT', summary: 'The most events looked at in one transaction' },
} as const

/** By the name of their consumer. What the line says wins over what the configuration says. */
export function snapshottersOf(
  store: Store,
  config: Config,
  { threshold, batch }: SnapshotterOptions = {},
): Snapshotter[] {
  return (config.aggregates ?? []).flatMap(aggregate => {
    if (aggregate.snapshots?.lifecycle !== 'async') return []
    if (threshold === undefined && batch === undefined) return [store.snapshots(aggregate)]
    const { every, batchSize, ...rest } = aggregate.snapshots
    const snapshots: SnapshotOptions = { ...rest, every: threshold ?? every, batchSize: batch ?? batchSize }
    return [store.snapshots({ ...aggregate, snapshots })]
  })
}

interface SnapshotterOptions {
  readonly threshold?: number | undefined
  readonly batch?: number | undefined
}

export async function openSnapshotters(
  { open, config }: Pick<Invocation, 'open' | 'config'>,
  given: SnapshotterOptions,
): Promise<Snapshotter[]> {
  const { store, config: own } = await open()
  const found = snapshottersOf(store, own, given)
  if (found.length === 0) throw new NothingRegistered({ what: 'snapshotters', path: (await config())?.path })
  return found
}
