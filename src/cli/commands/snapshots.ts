/** Commands about snapshots, of the aggregates that the configuration names as `snapshotters`. */
import type { Snapshotter, SnapshotterOptions } from '../../aggregates/snapshotter.ts'
import type { Config } from '../../config.ts'
import type { Store } from '../../store.ts'
import { type Commands, defineCommand, defineVerbs, type Invocation } from '../command.ts'
import { digits } from '../output/amount.ts'
import { table } from '../output/table.ts'
import { NothingRegistered } from '../report-error.ts'

// The snapshotters of the configuration.

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

const compactOnce = defineCommand({
  options: snapshotterOptions,
  examples: ['rillflow snapshots compact-once --threshold 100 --batch 100'],
  async run({ out, open, config, options, signal }) {
    const rows: { snapshotter: string; result: string; events: number; written: number }[] = []
    for (const each of await openSnapshotters({ open, config }, options)) {
      const { result, count, written } = await each.compactOnce({ signal })
      rows.push({ snapshotter: each.name, result, events: count, written })
    }
    out.print(rows, style =>
      table(
        style,
        rows,
        [
          { title: 'SNAPSHOTTER', of: each => each.snapshotter, paint: (_, colour) => colour.cyan },
          { title: 'RESULT', of: each => each.result },
          { title: 'EVENTS', of: each => each.events, right: true },
          { title: 'WRITTEN', of: each => each.written, right: true },
        ],
        '',
      ),
    )
  },
})

const runUntilIdle = defineCommand({
  options: snapshotterOptions,
  examples: ['rillflow snapshots run-until-idle --threshold 100 --batch 100'],
  async run({ out, open, config, options, signal }) {
    const rows: { snapshotter: string; written: number }[] = []
    for (const each of await openSnapshotters({ open, config }, options))
      rows.push({ snapshotter: each.name, written: await each.runUntilIdle({ signal }) })
    out.print(rows, style =>
      table(
        style,
        rows,
        [
          { title: 'SNAPSHOTTER', of: each => each.snapshotter, paint: (_, colour) => colour.cyan },
          { title: 'WRITTEN', of: each => each.written, right: true },
        ],
        '',
      ),
    )
  },
})

const metrics = defineCommand({
  options: { threshold: snapshotterOptions.threshold },
  examples: ['rillflow snapshots metrics --threshold 100'],
  async run({ out, open, config, options }) {
    const rows: { snapshotter: string; candidates: number; maxGap: number }[] = []
    for (const each of await openSnapshotters({ open, config }, options)) {
      const { candidates, maxGap } = await each.metrics()
      rows.push({ snapshotter: each.name, candidates, maxGap })
    }
    out.print(rows, style =>
      table(
        style,
        rows,
        [
          { title: 'SNAPSHOTTER', of: each => each.snapshotter, paint: (_, colour) => colour.cyan },
          { title: 'CANDIDATES', of: each => digits(each.candidates), right: true },
          { title: 'MAX GAP', of: each => digits(each.maxGap), right: true },
        ],
        '',
      ),
    )
  },
})

export const snapshots: Commands = defineVerbs({
  'compact-once': ['Write the snapshots of one batch', compactOnce],
  'run-until-idle': ['Write all snapshots that are due', runUntilIdle],
  metrics: ['How far streams are ahead of their snapshots', metrics],
})
