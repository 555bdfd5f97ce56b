/**
 * From rows to events: the one way out of the log, so that every read path upcasts and, if asked, validates alike.
 */
import { type Awaitable, isPromise } from '../../core/core.ts'
import { checkSchema } from '../../core/schema-check.ts'
import { CopiedLine, newline } from '../../database/copy-text.ts'
import { parseTimestamp } from '../../database/parse.ts'
import { refuseIssues } from '../append/prepare.ts'
import type { RecordedEvent } from '../definition.ts'
import { toRecordedEvent } from '../event.ts'
import type { Log } from '../log.ts'

const noHeaders: Readonly<Record<string, unknown>> = Object.freeze({})

/** Rows of: position, stream, version, event_id, type, schema_version, data, headers, correlation_id, causation_id, user_id, created_at. */
export function eventsOfRows(log: Log, rows: readonly unknown[][]): Awaitable<RecordedEvent[]> {
  return finish(log, rows.map(rawEventOfRow))
}

/**
 * The same from a page in COPY's text form. Each field is taken from the bytes by itself: a slice of a page's text would
 * keep the whole page in memory as long as one event of it.
 */
export async function eventsOfCopy(log: Log, page: Buffer): Promise<RecordedEvent[]> {
  const events: RecordedEvent[] = []
  const line = new CopiedLine(page)
  while (line.next()) {
    events.push(eventOfLine(line))
    // The next page is coming in meanwhile, if its bytes are let in.
    if (events.length % turnEvery === 0) await new Promise(setImmediate)
  }
  return finish(log, events)
}

const turnEvery = 250

function eventOfLine(line: CopiedLine): RecordedEvent {
  // In the order of the columns: each call takes the next field.
  const position = line.bigint()
  const stream = line.text()
  const version = line.number()
  const id = line.plain()
  const type = line.text()
  const schemaVersion = line.number()
  const data: unknown = JSON.parse(line.text())
  const headers = line.textOrNull()
  const correlation = line.text()
  const causation = line.textOrNull()
  const user = line.textOrNull()
  return toRecordedEvent(
    position,
    stream,
    version,
    id,
    type,
    schemaVersion,
    data,
    headers === null ? noHeaders : (JSON.parse(headers) as Record<string, unknown>),
    correlation === id ? id : correlation,
    causation,
    user,
    parseTimestamp(line.plain()),
  )
}

/** The position in the last line of such a page. */
export function lastPosition(page: Buffer): number | undefined {
  if (page.length === 0) return undefined
  return new CopiedLine(page, page.lastIndexOf(newline, page.length - 2) + 1).bigint()
}

/** As it is stored, whatever readers expect. */
export function rawEventOfRow(row: unknown[]): RecordedEvent {
  const [position, stream, version, id, type, schemaVersion, data, headers, correlation, causation, user, createdAt] =
    row as [
      number,
      string,
      number,
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
