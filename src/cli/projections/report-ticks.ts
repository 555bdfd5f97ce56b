/** What batches came to. One that stopped its projection is a failure of the command. */
import type { Tick } from '../../consumers/run/tick.ts'
import type { ExitCode } from '../command.ts'
import type { Output } from '../output/output.ts'
import { table } from '../output/table.ts'

export function reportTicks(out: Output, ticks: Readonly<Record<string, Tick>>): ExitCode {
  const rows = Object.entries(ticks).map(([projection, { result, count, error }]) => ({
    projection,
    result,
    events: count,
    ...(error === undefined ? {} : { error: error instanceof Error ? error.message : String(error) }),
  }))
  out.print(rows, style =>
    table(
      style,
      rows,
      [
        { title: 'PROJECTION', of: each => each.projection, paint: (_, colour) => colour.cyan },
        { title: 'RESULT', of: each => each.result },
        { title: 'EVENTS', of: each => each.events, right: true },
        ...(rows.some(each => each.error !== undefined)
          ? [{ title: 'ERROR', of: (each: (typeof rows)[number]) => each.error, cut: true }]
          : []),
      ],
      '',
    ),
  )
  return rows.some(each => each.result === 'stopped') ? 1 : 0
}
