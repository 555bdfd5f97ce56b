/** `rillflow snapshots run-until-idle` */
import { type Command, defineCommand } from '../command.ts'
import { table } from '../output/table.ts'
import { openSnapshotters, snapshotterOptions } from './snapshotters.ts'

export const runUntilIdleCommand: Command = defineCommand({
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
