/** `rillflow snapshots metrics` */
import { type Command, defineCommand } from '../command.ts'
import { digits } from '../output/amount.ts'
import { table } from '../output/table.ts'
import { openSnapshotters, snapshotterOptions } from './snapshotters.ts'

export const metricsCommand: Command = defineCommand({
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
