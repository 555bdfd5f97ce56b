/** The snapshotters of the configuration. */
import type { Snapshotter, SnapshotterOptions } from '../../aggregates/snapshotter.ts'
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
  given: Pick<SnapshotterOptions, 'threshold' | 'batch'> = {},
): Snapshotter[] {
  const { threshold, batch } = given
  return (config.snapshotters ?? []).map(({ aggregate, ...options }) =>
    store.snapshotter(aggregate, {
      ...options,
      ...(threshold === undefined ? {} : { threshold }),
      ...(batch === undefined ? {} : { batch }),
    }),
  )
}

export async function openSnapshotters(
  { open, config }: Pick<Invocation, 'open' | 'config'>,
  given: Pick<SnapshotterOptions, 'threshold' | 'batch'>,
): Promise<Snapshotter[]> {
  const { store, config: own } = await open()
  const found = snapshottersOf(store, own, given)
  if (found.length === 0) throw new NothingRegistered({ what: 'snapshotters', path: (await config())?.path })
  return found
}
