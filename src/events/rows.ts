/**
 * From rows to events: the one way out of the log, so that every read path upcasts and, if asked, validates alike.
 */
import { type Awaitable, isPromise } from '../core/core.ts'
import { checkSchema } from '../core/schema-check.ts'
import { copiedValue } from '../database/copy-text.ts'
import { parseTimestamp } from '../database/parse.ts'
import type { RecordedEvent } from './definition.ts'
import { toRecordedEvent } from './event.ts'
import type { Log } from './log.ts'
import { refuseIssues } from './prepare.ts'

const noHeaders: Readonly<Record<string, unknown>> = Object.freeze({})

/** Rows of: position, stream, version, event_id, type, schema_version, data, headers, correlation_id, causation_id, user_id, created_at. */
export function eventsOfRows(log: Log, rows: readonly unknown[][]): Awaitable<RecordedEvent[]> {
  return finish(log, rows.map(eventOfRow))
}

/**
 * The same from a page in COPY's text form. Each field is taken from the bytes by itself: a slice of a page's text would
 * keep the whole page in memory as long as one event of it.
 */
export function eventsOfCopy(log: Log, page: Buffer): Awaitable<RecordedEvent[]> {
  const events: RecordedEvent[] = []
  const fields: string[] = []
  for (let at = 0; at < page.length; ) {
    const end = page.indexOf(newline, at)
    for (let field = 0; at <= end; field++) {
      const tab = page.indexOf(tabulator, at)
      const stop = tab === -1 || tab > end ? end : tab
      fields[field] = page.toString('utf8', at, stop)
      at = stop + 1
    }
    events.push(eventOfFields(fields))
  }
  return finish(log, events)
}

/** The position in the last line of such a page. */
export function lastPosition(page: Buffer): bigint | undefined {
  if (page.length === 0) return undefined
  const start = page.lastIndexOf(newline, page.length - 2) + 1
  return BigInt(page.toString('latin1', start, page.indexOf(tabulator, start)))
}

const newline = 10
const tabulator = 9

function eventOfRow(row: unknown[]): RecordedEvent {
  const [position, stream, version, id, type, schemaVersion, data, headers, correlation, causation, user, createdAt] =
    row as [
      bigint,
      string,
      bigint,
      string,
      string,
      number,
      unknown,
      Record<string, unknown> | null,
      string,
      string | null,
      string | null,
      Date,
    ]
  const place = [position, stream, Number(version), id, type, schemaVersion, data, headers ?? noHeaders] as const
  return toRecordedEvent(...place, correlation, causation, user, createdAt)
}

function eventOfFields(fields: string[]): RecordedEvent {
  const headers = fields[7] === '\\N' ? noHeaders : (JSON.parse(copiedValue(fields[7]!)) as Record<string, unknown>)
  return toRecordedEvent(
    BigInt(fields[0]!),
    copiedValue(fields[1]!),
    Number(fields[2]),
    fields[3]!,
    copiedValue(fields[4]!),
    Number(fields[5]),
    JSON.parse(copiedValue(fields[6]!)),
    headers,
    copiedValue(fields[8]!),
    fields[9] === '\\N' ? null : copiedValue(fields[9]!),
    fields[10] === '\\N' ? null : copiedValue(fields[10]!),
    parseTimestamp(fields[11]!),
  )
}

/** Events in the shape readers expect; a promise only if an upcaster or a schema is asynchronous. */
function finish(log: Log, events: RecordedEvent[]): Awaitable<RecordedEvent[]> {
  log.telemetry.count('events_read_total', events.length)
  let later = false
  const shaped = events.map((event): Awaitable<RecordedEvent> => {
    const upcast = log.upcasters.apply(event)
    const checked = log.validateOnRead ? validated(log, upcast) : upcast
    later ||= isPromise(checked)
    return checked
  })
  return later ? Promise.all(shaped) : (shaped as RecordedEvent[])
}

function validated(log: Log, event: Awaitable<RecordedEvent>): Awaitable<RecordedEvent> {
  if (isPromise(event)) return event.then(late => validated(log, late))
  const schema = log.definitions.schemas.get(event.type)
  if (schema === undefined) return event
  const issues = checkSchema(schema, event.data, 'data')
  if (isPromise(issues))
    return issues.then(late => {
      refuseIssues(event.type, late, event.id)
      return event
    })
  refuseIssues(event.type, issues, event.id)
  return event
}
