/** The option that names a group, and a group on a line. */
import type { GroupStatus } from '../../subscriptions/status.ts'
import { errorLine, lagOf } from '../output/consumer.ts'
import type { Style } from '../output/output.ts'
import { fields, table } from '../output/table.ts'

export const groupOption = {
  group: { kind: 'text', value: 'GROUP', summary: 'Only this group' },
} as const

export function groupStateOf(status: GroupStatus): string {
  if (status.isPaused) return 'paused'
  return status.partitions.some(each => each.owner !== undefined) ? 'running' : 'stopped'
}

/** A group in full, with its partitions if it has several. */
export function groupInFull(style: Style, status: GroupStatus): string {
  const owners = [...new Set(status.partitions.flatMap(each => each.owner ?? []))]
  const shown = fields(style, {
    subscription: style.colour.cyan(status.subscription),
    group: status.group,
    state: groupStateOf(status),
    checkpoint: `${status.checkpoint} of ${status.head}`,
    lag: lagOf(status),
    'max in flight': status.maxInFlight,
    'held by': owners.length === 0 ? undefined : owners.join(', '),
    'dead letters': status.deadLetters,
    'last error': errorLine(status.lastError),
  })
  if (status.partitions.length === 1) return shown
  const partitions = table(
    style,
    status.partitions,
    [
      { title: 'PARTITION', of: each => each.consumer },
      { title: 'CHECKPOINT', of: each => each.checkpoint, right: true },
      { title: 'LAG', of: each => each.lag, right: true },
      { title: 'ACKED BEYOND', of: each => each.acked, right: true },
      { title: 'GIVEN BACK', of: each => each.givenBack, right: true },
      { title: 'HELD BY', of: each => each.owner, cut: true },
    ],
    '',
  )
  return `${shown}\n\n${partitions}`
}
