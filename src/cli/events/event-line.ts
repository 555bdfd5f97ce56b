/** An event on one line, and in full. */
import type { RecordedEvent } from '../../events/definition.ts'
import { ago, clockTime } from '../output/amount.ts'
import { type Style, toJson } from '../output/output.ts'
import { cutTo, fields } from '../output/table.ts'

/** `#42  12:30:05  order-7@3  OrderPaid  {"method":"card"}` */
export function eventLine(style: Style, event: RecordedEvent): string {
  const { dim, cyan, bold } = style.colour
  const position = `#${event.position}`.padStart(6)
  const time = clockTime(event.createdAt)
  const place = `${event.stream}@${event.version}`.padEnd(24)
  const type = event.type.padEnd(18)
  const data = toJson(event.data) ?? ''
  const used = [position, time, place, type].join('  ').length + 2
  const shown = style.width === undefined ? data : cutTo(data, Math.max(10, style.width - used), style)
  return `${dim(position)}  ${dim(time)}  ${cyan(place)}  ${bold(type)}  ${shown}`.trimEnd()
}

export function eventInFull(style: Style, event: RecordedEvent): string {
  return fields(style, {
    event: event.id,
    type: style.colour.bold(event.type),
    stream: `${event.stream} at version ${event.version}`,
    position: event.position,
    created: `${event.createdAt.toISOString()} (${ago(event.createdAt, style.now)})`,
    shape: event.schemaVersion === 1 ? undefined : `version ${event.schemaVersion}`,
    correlation: event.correlationId,
    causation: event.causationId,
    user: event.userId,
    headers: Object.keys(event.headers).length === 0 ? undefined : toJson(event.headers, 2),
    data: toJson(event.data, 2),
  })
}
