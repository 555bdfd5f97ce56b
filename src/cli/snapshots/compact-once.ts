/** `rillflow snapshots compact-once` */
import { type Command, defineCommand } from '../command.ts'
import { table } from '../output/table.ts'
import { openSnapshotters, snapshotterOptions } from './snapshotters.ts'

export const compactOnceCommand: Command = defineCommand({
  options: snapshotterOptions,
  examples: ['rillflow snapshots compact-once --threshold 100 --batch 100'],
  async run({ out, open, config, options, signal }) {
    const rows: { snapshotter: string; result: string; events: number; written: number }[] = []
    for (const each of await openSnapshotters({ open, config }, options)) {
      const { result, count, written } = await each.runOnce({ signal })
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
