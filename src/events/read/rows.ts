/**
 * From rows to events: the one way out of the log, so that every read path upcasts and, if asked, validates alike.
 */

import { type Awaitable, isPromise } from '../../core/core.ts'
import { nextTurn } from '../../core/host.ts'
import { maxPageBytes } from '../../core/page.ts'
import { checkSchema } from '../../core/schema-check.ts'
import { CopiedLine, newline } from '../../database/copy-text.ts'
import { Fragment, Identifier, identifiers, numeral } from '../../database/sql.ts'
import { maxRowBytes } from '../../database/sqlstate.ts'
import { refuseIssues } from '../append/prepare.ts'
import type { RecordedEvent } from '../definition.ts'
import { EventTooLarge } from '../errors.ts'
import type { Log } from '../log.ts'

/** The columns of an event, in the order in which every statement selects them and `eventOf` takes them. */
const columns = [
  'position',
  'stream',
  'version',
  'event_id',
  'type',
  'schema_version',
  'data',
  'headers',
  'correlation_id',
  'causation_id',
  'user_id',
  'created_at',
] as const

/** The columns as they are in the table, for a part of a statement whose whole selects `eventColumns` of it. */
export const storedColumns: Identifier = identifiers([...columns, 'bytes'])

/** An event of more bytes is not read: it comes without its data, so that it does not hide the others. */
export const maxReadBytes: number = maxRowBytes - 1024 * 1024

/** Higher than any schema version: what an event without its data has more of it. */
const largeMark = 1_000_000_000

/** The columns to select of the log, for rows that `eventsOfRows` takes. */
export const eventColumns: Identifier = new Identifier(eventColumnsText(''))

/**
 * The same of a joined table; `others` makes another expression of that of a column. An event that is too large to be read
 * has a schema version beyond `largeMark`, and no data.
 */
export function eventColumnsOf(
  table: string,
  others: Readonly<Partial<Record<(typeof columns)[number], (shown: string) => string>>> = {},
): Fragment {
  return new Fragment([eventColumnsText(`${table}.`, others)], [])
}

function eventColumnsText(
  prefix: string,
  others: Readonly<Partial<Record<string, (shown: string) => string>>> = {},
): string {
  const isLarge = `${prefix}bytes > ${maxReadBytes}`
  const shown: Partial<Record<string, string>> = {
    schema_version: `${prefix}schema_version + case when ${isLarge} then ${largeMark} else 0 end`,
    data: `case when ${isLarge} then 'null' else ${prefix}data end`,
    headers: `case when ${isLarge} then null else ${prefix}headers end`,
  }
  return columns
    .map(name => {
      const text = shown[name] ?? `${prefix}${name}`
      return others[name]?.(text) ?? text
    })
    .join(', ')
}

/*
 * A page ends with the first event that reaches `maxPageBytes`, whatever its limit of events. A prepared statement selects `total`, the bytes up to and with each event, after the event's columns. COPY first looks for
 * the position of that event (`endOfPage`), and shows only by its length that there was one. Measured with pages of 2000 small
 * events, in µs of the server for each: without a limit 4.7, with the position 5.2, with `total` 6.4.
 */
/** Whether a page of rows that end with `total` was ended by its bytes: then there may be more. */
export function isCut(rows: readonly (readonly unknown[])[]): boolean {
  return Number(rows.at(-1)?.[eventColumnCount] ?? 0) >= maxPageBytes
}

/** In a row that begins with an event, where the rest begins. */
export const eventColumnCount: number = columns.length

/** Of rows that begin with `eventColumns`. */
export function eventsOfRows(log: Log, rows: readonly (readonly unknown[])[]): Awaitable<RecordedEvent[]> {
  return toReaders(log, rows.map(rawEventOfRow))
}

/** As it is stored, whatever readers expect. */
export function rawEventOfRow(row: readonly unknown[]): RecordedEvent {
  return eventOf(new RowFields(row))
}

/** Of a page in COPY's text form. */
export async function eventsOfCopy(log: Log, page: Buffer): Promise<RecordedEvent[]> {
  const events: RecordedEvent[] = []
  const line = new CopiedLine(page)
  while (line.next()) {
    events.push(eventOf(line))
    // A turn of the event loop lets the bytes of the next page arrive meanwhile.
    if (events.length % turnEvery === 0) await nextTurn()
  }
  return toReaders(log, events)
}

const turnEvery = 250

const shownBytes = `case when bytes > ${maxReadBytes} then 200 else bytes end`

/**
 * SQL of the position at which a page of a COPY ends: that of the event which reaches the limit of bytes, otherwise `to`.
 * An event without its data counts as what is left of it, because the length of the page is compared with the limit.
 * `rows` is the rest of a query of events, from `from` on, with the limit of the page.
 */
export function endOfPage(rows: string, to: number): string {
  return `coalesce((
        select position
        from (
          select position, sum(${shownBytes}) over (order by position rows unbounded preceding) as total
          ${rows}) as page
        where total >= ${maxPageBytes}
        order by position
        limit 1), ${numeral(to)})`
}

/** Whether such a page may have been ended by its bytes: an event counts as 200 more than its data and headers. */
export function isCopyCut(page: Buffer, events: number): boolean {
  return page.length + 200 * events >= maxPageBytes
}

/** The position in the last line of such a page. */
export function lastPosition(page: Buffer): number | undefined {
  if (page.length === 0) return undefined
  return new CopiedLine(page, page.lastIndexOf(newline, page.length - 2) + 1).number()
}

function eventOf(fields: Fields): RecordedEvent {
  // In the order of `columns`: each call takes the next field.
  const position = fields.number()
  const stream = fields.text()
  const version = fields.number()
  const id = fields.plain()
  const type = fields.text()
  const schemaVersion = fields.number()
  const data = fields.json()
  const headers = fields.jsonOrNull() as Record<string, unknown> | null
  const correlation = fields.text()
  const causation = fields.textOrNull()
  const user = fields.textOrNull()
  const make = schemaVersion > largeMark ? toLargeEvent : toRecordedEvent
  return make(
    position,
    stream,
    version,
    id,
    type,
    schemaVersion,
    data,
    headers ?? noHeaders,
    // The text of the id once, where an event is its own correlation.
    correlation === id ? id : correlation,
    causation,
    user,
    fields.time(),
  )
}

const noHeaders: Readonly<Record<string, unknown>> = Object.freeze({})

/** The fields of a row, one after the other, from either source. */
type Fields = Pick<CopiedLine, 'number' | 'text' | 'plain' | 'textOrNull' | 'json' | 'jsonOrNull' | 'time'>

/** Of a query's row, whose values are decoded already. */
class RowFields implements Fields {
  readonly #row: readonly unknown[]
  #at = 0
  constructor(row: readonly unknown[]) {
    this.#row = row
  }
  number(): number {
    return Number(this.#row[this.#at++])
  }
  text(): string {
    return this.#row[this.#at++] as string
  }
  plain(): string {
    return this.#row[this.#at++] as string
  }
  textOrNull(): string | null {
    return this.#row[this.#at++] as string | null
  }
  json(): unknown {
    return this.#row[this.#at++]
  }
  jsonOrNull(): unknown {
    return this.#row[this.#at++]
  }
  time(): Date {
    return this.#row[this.#at++] as Date
  }
}

/** Events in the shape readers expect; a promise only if an upcaster or a schema is asynchronous. */
function toReaders(log: Log, events: RecordedEvent[]): Awaitable<RecordedEvent[]> {
  log.telemetry.count('events_read_total', events.length)
  let later = false
  const shaped = events.map((event): Awaitable<RecordedEvent> => {
    if (event.isTooLarge === true) return event
    const upcast = log.upcasters.apply(event)
    const checked = log.validateOnRead ? validated(log, upcast) : upcast
    later ||= isPromise(checked)
    return checked
  })
  return later ? Promise.all(shaped) : (shaped as RecordedEvent[])
}

function validated(log: Log, event: Awaitable<RecordedEvent>): Awaitable<RecordedEvent> {
  if (isPromise(event)) return event.then(late => validated(log, late))
  const schema = log.schemas.get(event.type)
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

/**
 * An event in memory, made from its columns by position: that happens once per row. Every field is always set, one without
 * a value to undefined, in this order, so that all events share one hidden class.
 */
export function toRecordedEvent(
  position: number,
  stream: string,
  version: number,
  id: string,
  type: string,
  schemaVersion: number,
  data: unknown,
  headers: Readonly<Record<string, unknown>>,
  correlationId: string,
  causationId: string | null | undefined,
  userId: string | null | undefined,
  createdAt: Date,
): RecordedEvent {
  return {
    id,
    type,
    data,
    stream,
    version,
    position,
    schemaVersion,
    headers,
    correlationId,
    causationId: causationId ?? undefined,
    userId: userId ?? undefined,
    createdAt,
  }
}

/** Everything but its data, which throws. */
function toLargeEvent(...fields: Parameters<typeof toRecordedEvent>): RecordedEvent {
  const { data: _, ...event } = toRecordedEvent(...fields)
  const large = { ...event, schemaVersion: event.schemaVersion - largeMark, isTooLarge: true }
  return Object.defineProperty(large, 'data', {
    get(): never {
      throw eventTooLarge(large)
    },
  }) as unknown as RecordedEvent
}

export function eventTooLarge({ id, stream, position }: Pick<RecordedEvent, 'id' | 'stream' | 'position'>): Error {
  return new EventTooLarge({ eventId: id, stream, position, maxBytes: maxReadBytes })
}

/** The same event with other data, as an upcaster gives it. */
export function reshapeEvent(event: RecordedEvent, type: string, schemaVersion: number, data: unknown): RecordedEvent {
  return { ...event, type, schemaVersion, data }
}
