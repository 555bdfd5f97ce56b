/**
 * `rillflow snapshots`: writes the snapshots that aggregates of the configuration have in the background.
 *
 *     compact-once     the snapshots of one batch
 *     run-until-idle   all snapshots that are due
 *     metrics          how far streams are ahead of their snapshots
 *
 * What can fail: no aggregate of the configuration has snapshots in the background (`NothingRegistered`).
 */
import type { SnapshotOptions } from '../../aggregates/aggregate.ts'
import type { Snapshotter } from '../../aggregates/snapshotter.ts'
import type { Config } from '../../config.ts'
import type { Store } from '../../store.ts'
import { type Commands, defineCommand, defineVerbs, type Invocation } from '../command.ts'
import { digits } from '../output/amount.ts'
import { type Column, table } from '../output/table.ts'
import { NothingRegistered } from '../report-error.ts'

const options = {
  threshold: {
    kind: 'whole',
    value: 'COUNT',
    summary: 'A snapshot is due when its stream is this many events ahead of it',
  },
  batch: { kind: 'whole', value: 'COUNT', summary: 'The maximum number of events in one transaction' },
} as const

const compactOnce = defineCommand({
  options,
  examples: ['rillflow snapshots compact-once --threshold 100 --batch 100'],
  async run({ out, open, config, options, signal }) {
    const rows: { snapshotter: string; result: string; events: number; written: number }[] = []
    for (const snapshotter of await openSnapshotters({ open, config }, options)) {
      const { result, count, written } = await snapshotter.runOnce({ signal })
      rows.push({ snapshotter: snapshotter.name, result, events: count, written })
    }
    const columns: Column<(typeof rows)[number]>[] = [
      { title: 'SNAPSHOTTER', of: row => row.snapshotter, paint: (_, colour) => colour.cyan },
      { title: 'RESULT', of: row => row.result },
      { title: 'EVENTS', of: row => row.events, right: true },
      { title: 'WRITTEN', of: row => row.written, right: true },
    ]
    out.print(rows, style => table(style, rows, columns, ''))
  },
})

const runUntilIdle = defineCommand({
  options,
  examples: ['rillflow snapshots run-until-idle --threshold 100 --batch 100'],
  async run({ out, open, config, options, signal }) {
    const rows: { snapshotter: string; written: number }[] = []
    for (const snapshotter of await openSnapshotters({ open, config }, options))
      rows.push({ snapshotter: snapshotter.name, written: await snapshotter.runUntilIdle({ signal }) })
    const columns: Column<(typeof rows)[number]>[] = [
      { title: 'SNAPSHOTTER', of: row => row.snapshotter, paint: (_, colour) => colour.cyan },
      { title: 'WRITTEN', of: row => row.written, right: true },
    ]
    out.print(rows, style => table(style, rows, columns, ''))
  },
})

const metrics = defineCommand({
  options: { threshold: options.threshold },
  examples: ['rillflow snapshots metrics --threshold 100'],
  async run({ out, open, config, options }) {
    const rows: { snapshotter: string; candidates: number; maxGap: number }[] = []
    for (const snapshotter of await openSnapshotters({ open, config }, options, 'read')) {
      const { candidates, maxGap } = await snapshotter.metrics()
      rows.push({ snapshotter: snapshotter.name, candidates, maxGap })
    }
    const columns: Column<(typeof rows)[number]>[] = [
      { title: 'SNAPSHOTTER', of: row => row.snapshotter, paint: (_, colour) => colour.cyan },
      { title: 'CANDIDATES', of: row => digits(row.candidates), right: true },
      { title: 'MAX GAP', of: row => digits(row.maxGap), right: true },
    ]
    out.print(rows, style => table(style, rows, columns, ''))
  },
})

export const snapshots: Commands = defineVerbs({
  'compact-once': ['Write the snapshots of one batch', compactOnce],
  'run-until-idle': ['Write all snapshots that are due', runUntilIdle],
  metrics: ['Show how far streams are ahead of their snapshots', metrics],
})

async function openSnapshotters(
  { open, config }: Pick<Invocation, 'open' | 'config'>,
  given: SnapshotterOptions,
  purpose: 'read' | 'write' = 'write',
): Promise<Snapshotter[]> {
  const { store, config: storeConfig } = await open({ purpose })
  const snapshotters = createSnapshotters(store, storeConfig, given)
  if (snapshotters.length === 0)
    throw new NothingRegistered({ what: 'aggregates with snapshots in the background', path: (await config())?.path })
  return snapshotters
}

/** Creates the snapshotters of the configuration. Options of the line win over those of the configuration. */
function createSnapshotters(
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
