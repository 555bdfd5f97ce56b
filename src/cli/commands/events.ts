/**
 * `rillflow events`: reads the log, appends to it, and carries events out and in as NDJSON.
 *
 *     tail · list · show              the latest events, pages of them, or one event in full
 *     why                             what each consumer and handler does about an event
 *     append                          one event to one stream
 *     export ──► NDJSON ──► import    one event a line; positions and versions are assigned again by the import
 *
 * How an event is printed, and the options that filter events, are here too: other nouns use them.
 *
 * What can fail: a line of an import that is not an event; the error names the file and the line.
 */
import { createReadStream, createWriteStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { pipeline } from 'node:stream/promises'
import type { RecordedEvent } from '../../events/definition.ts'
import type { ImportedEvent } from '../../events/import/import.ts'
import { ExportExists } from '../../transfer/export/errors.ts'
import type { Explanation } from '../../upkeep/explain/explain.ts'
import { type Commands, defineCommand, defineVerbs } from '../command.ts'
import { listCommand, pageOptions } from '../list-command.ts'
import { ago, clockTime, count, digits } from '../output/amount.ts'
import { type Style, toJson } from '../output/output.ts'
import { cutMiddle, cutTo, fields } from '../output/table.ts'
import { NothingFound, WrongUsage } from '../report-error.ts'

export const eventFilterOptions = {
  type: { kind: 'text', many: true, value: 'TYPE', summary: 'Only events of this type', aliases: ['event-type'] },
  stream: { kind: 'text', many: true, value: 'STREAM', summary: 'Only events of this stream', aliases: ['stream-id'] },
  category: {
    kind: 'text',
    many: true,
    value: 'CATEGORY',
    summary: 'Only events of streams whose name begins with this and a "-"',
  },
} as const

const tail = defineCommand({
  description: 'Every event is printed once, in the order of the log. With --json each event is a line of NDJSON.',
  options: {
    follow: { kind: 'flag', short: 'f', summary: 'Continue with new events until Ctrl-C' },
    limit: { kind: 'whole', default: 10, value: 'COUNT', summary: 'The number of latest events to begin with' },
    after: {
      kind: 'position',
      value: 'POSITION',
      summary: 'Begin after this position, with all events instead of the latest',
    },
    ...eventFilterOptions,
  },
  examples: [
    'rillflow events tail --follow',
    'rillflow events tail --type OrderPlaced --limit 100 --json | jq .data.total',
  ],
  async run({ out, open, options, signal }) {
    const { store } = await open()
    const print = (event: RecordedEvent): void => out.line(event, style => eventLine(style, event))
    const filter = eventFilter(options)
    const { settled } = await store.events.settled()
    const read = (after: number): AsyncIterable<RecordedEvent> =>
      store.events.readAll({ ...filter, to: settled, includeArchived: true, signal, from: after })
    if (options.after !== undefined) for await (const event of read(options.after)) print(event)
    else for (const event of await readLatest(read, settled, options.limit)) print(event)
    if (!options.follow) return
    for await (const event of store.events.tail({ ...filter, from: settled, signal })) print(event)
  },
})

/** Finds the last events of a log that can only be read forwards: it reads windows from the end, each ten times larger. */
async function readLatest(
  read: (after: number) => AsyncIterable<RecordedEvent>,
  head: number,
  limit: number,
): Promise<RecordedEvent[]> {
  if (limit === 0) return []
  for (let window = limit * 2; ; window *= 10) {
    const after = head > window ? head - window : 0
    let events: RecordedEvent[] = []
    for await (const event of read(after)) {
      events.push(event)
      if (events.length > limit * 2) events = events.slice(-limit)
    }
    if (events.length >= limit || after === 0) return events.slice(-limit)
  }
}

const list = listCommand({
  description: 'A page costs about the same wherever it is, and however rare its events are.',
  options: {
    ...eventFilterOptions,
    correlationId: { kind: 'text', value: 'ID', summary: 'Only events of this workflow' },
    user: { kind: 'text', value: 'USER', summary: 'Only events of this user' },
    since: { kind: 'time', value: 'TIME', summary: 'Only events after this: a time, or an age such as 15m, 2h, 7d' },
    until: { kind: 'time', value: 'TIME', summary: 'Only events before this' },
    oldest: { kind: 'flag', summary: 'Show the oldest first' },
    ...pageOptions,
  },
  examples: ['rillflow events list --type OrderPlaced --since 1h', 'rillflow events list --user ada --json'],
  empty: 'There are no such events.',
  list: (store, { type, stream, category, user, oldest, ...rest }) =>
    store.events.list({
      ...rest,
      ...eventFilter({ type, stream, category }),
      userId: user,
      order: oldest ? 'oldest' : 'newest',
    }),
  columns: ({ now }) => [
    { title: 'POSITION', of: ({ position }) => String(position), right: true },
    { title: 'TYPE', of: ({ type }) => type, paint: (_, colour) => colour.cyan },
    { title: 'STREAM', of: ({ stream, version }) => `${stream}@${version}` },
    { title: 'AGE', of: ({ createdAt }) => ago(createdAt, now), paint: (_, colour) => colour.dim },
    { title: 'DATA', of: ({ data }) => toJson(data), cut: true },
  ],
})

const why = defineCommand({
  description: 'Each consumer and handler that could want the event is listed, with the line that mends it.',
  arguments: [{ name: 'event', summary: 'The id of the event' }],
  examples: ['rillflow events why 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { event: id } }) {
    const { store } = await open()
    const found = await store.explain(id)
    if (found === undefined) throw new NothingFound({ what: 'event', given: id, hint: 'rillflow events list' })
    out.print(found, style => explanationText(style, found))
  },
})

/** A line for each verdict, and below it the line that mends it. */
export function explanationText({ colour }: Style, { verdicts, isDone }: Explanation): string {
  const paints = { blocked: colour.red, waiting: colour.yellow, done: colour.green, none: colour.dim }
  const lines = verdicts.flatMap(({ name, state, message, fix }) => [
    `${paints[state](state.padEnd(8))} ${colour.cyan(name ?? 'log')}: ${message}`,
    ...(fix === undefined ? [] : [`${' '.repeat(9)}${fix}`]),
  ])
  return [...lines, isDone ? 'Nothing is left to do.' : 'It is not done yet.'].join('\n')
}

const types = listCommand({
  description: 'Shows the types that the configuration defines, and those of the newest 10 000 events.',
  examples: ['rillflow events types'],
  empty: 'No event has been appended, and no type is defined.',
  list: async store => ({ items: await store.events.types(), next: undefined }),
  columns: () => [
    { title: 'TYPE', of: ({ type }) => type, paint: (_, colour) => colour.cyan },
    { title: 'SCHEMA', of: ({ hasSchema }) => (hasSchema ? 'yes' : 'no') },
    { title: 'RECENT', of: ({ recent }) => recent, right: true },
    { title: 'LAST POSITION', of: ({ lastPosition }) => lastPosition, right: true },
  ],
})

const position = defineCommand({
  description:
    'Prints the position of the last event that was created at or before a time. Where an import brought old times, it is near it.',
  arguments: [{ name: 'time', summary: 'A time, or an age such as 15m, 2h, 7d', kind: 'time' }],
  examples: ['rillflow events position 2h', 'rillflow events position 2026-01-31T12:00:00Z'],
  async run({ out, open, arguments: { time } }) {
    const { store } = await open()
    const found = await store.events.positionAt(time)
    out.print({ time, position: found }, () => String(found))
  },
})

const show = defineCommand({
  arguments: [{ name: 'event', summary: 'The id of the event' }],
  options: { stored: { kind: 'flag', summary: 'As it is stored, with exact numbers, before it is upcast' } },
  examples: [
    'rillflow events show 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001',
    'rillflow events show 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --stored',
  ],
  async run({ out, open, arguments: { event: id }, options: { stored } }) {
    const { store } = await open()
    if (stored) {
      const found = await store.events.stored(id)
      if (found === undefined) throw new NothingFound({ what: 'event', given: id, hint: 'rillflow events tail' })
      const steps = found.shapes.map(({ type, schemaVersion }) => `${type}, schema ${schemaVersion}`).join(' → ')
      out.print(found, () => [steps, found.data, ...(found.headers === undefined ? [] : [found.headers])].join('\n'))
      return
    }
    const event = await store.events.get(id)
    if (event === undefined) throw new NothingFound({ what: 'event', given: id, hint: 'rillflow events tail' })
    out.print(event, style => eventInFull(style, event))
  },
})

const append = defineCommand({
  description:
    'The event is checked against its definition in the configuration. An embedded store is created if there is none.',
  arguments: [
    { name: 'stream', summary: 'The name of the stream' },
    { name: 'type', summary: 'The type of the event, in the past tense' },
    { name: 'data', summary: 'The data of the event as JSON', kind: 'json', optional: true },
  ],
  options: {
    expected: {
      kind: 'text',
      value: 'VERSION',
      summary: 'The version that the stream must have: a number, empty, exists or any',
    },
    key: { kind: 'text', value: 'KEY', summary: 'An idempotency key: the same append again changes nothing' },
    headers: { kind: 'json', value: 'JSON', summary: 'The headers of the event as a JSON object' },
    correlationId: { kind: 'text', value: 'ID', summary: 'The workflow that the event belongs to' },
    causationId: { kind: 'text', value: 'ID', summary: 'The id of the event or command that caused it' },
    user: { kind: 'text', value: 'USER', summary: 'The user who caused it' },
  },
  examples: [`rillflow events append order-42 OrderPlaced '{"total":99}' --expected empty`],
  async run({ out, open, arguments: { stream, type, data }, options }) {
    const expected = parseExpected(options.expected)
    const { headers } = options
    if (headers !== undefined && (typeof headers !== 'object' || headers === null || Array.isArray(headers)))
      throw new WrongUsage({ reason: '--headers must be a JSON object' })
    const { store } = await open({ create: true, purpose: 'write' })
    const event = {
      ...{ type, data: data ?? {}, headers: headers as Record<string, unknown> | undefined },
      ...{ correlationId: options.correlationId, causationId: options.causationId, userId: options.user },
    }
    const result = await store.events.append(stream, event, { expected, idempotencyKey: options.key })
    out.print(result, style => {
      const outcome = result.repeated ? 'Already appended' : style.colour.green('Appended')
      return `${outcome}: ${type} to ${stream}, version ${result.version}, position ${result.position}.`
    })
  },
})

function parseExpected(text: string | undefined): number | 'empty' | 'exists' | 'any' | undefined {
  if (text === undefined || text === 'empty' || text === 'exists' || text === 'any') return text
  if (/^\d+$/.test(text)) return Number(text)
  throw new WrongUsage({ reason: `--expected must be a version, empty, exists or any, not ${JSON.stringify(text)}` })
}

const exportEvents = defineCommand({
  description:
    'Writes one event a line, in the form that `events import` reads, up to the end of the log when the export begins.',
  options: {
    output: {
      kind: 'text',
      value: 'FILE',
      summary: 'The file to write, which must not exist. Default, and for -: stdout',
    },
    after: { kind: 'position', value: 'POSITION', summary: 'Only events after this position' },
    to: { kind: 'position', value: 'POSITION', summary: 'Only events up to this position' },
    ...eventFilterOptions,
  },
  examples: [
    'rillflow events export --output events.ndjson',
    'rillflow events export --category order | gzip > orders.ndjson.gz',
  ],
  async run({ out, open, options, signal }) {
    const { store } = await open()
    const { settled } = await store.events.settled()
    const to = options.to !== undefined && options.to < settled ? options.to : settled
    const after = options.after ?? 0
    const bar = out.progress('Exporting')
    const file = options.output === '-' ? undefined : options.output
    let events = 0
    const filter = { ...eventFilter(options), from: after, to, includeArchived: true, signal }
    const lines = async function* (): AsyncGenerator<string> {
      for await (const event of store.events.readAll(filter)) {
        yield `${toJson(event)}\n`
        events++
        bar.update(event.position - after, to - after, 'position')
      }
    }
    const target = file === undefined ? process.stdout : createWriteStream(file, { flags: 'wx' })
    await pipeline(lines, target, { end: file !== undefined })
      .catch((error: NodeJS.ErrnoException) => {
        throw error.code === 'EEXIST' ? new ExportExists({ output: file! }, error) : error
      })
      .finally(() => bar.end())
    if (file === undefined) out.note(`Exported ${count(events, 'event')}.`)
    else out.print({ events, output: file }, () => `Exported ${count(events, 'event')} to ${file}.`)
  },
})

const importEvents = defineCommand({
  description:
    'Each line is an event with stream, type and data. Its id, headers, schemaVersion, correlationId, causationId, userId and createdAt are used if the line has them. The import assigns new positions and versions. An import with a name that was interrupted is resumed by the next call.',
  arguments: [{ name: 'file', summary: 'The NDJSON file, or - for stdin' }],
  options: {
    name: { kind: 'text', value: 'NAME', summary: 'A name for the import, so that it can be resumed' },
    chunkSize: { kind: 'whole', value: 'COUNT', summary: 'The number of events in a transaction' },
  },
  examples: [
    'rillflow events import events.ndjson --name move-2026',
    'gunzip -c orders.ndjson.gz | rillflow events import -',
  ],
  async run({ out, open, arguments: { file }, options: { name, chunkSize }, signal }) {
    const size = file === '-' ? undefined : await sizeOf(file)
    const { store } = await open({ create: true, purpose: 'write' })
    const bar = out.progress('Importing')
    const source = readEvents(file)
    const onProgress = ({ events }: { events: number }): void => {
      // The total is estimated from the part of the file that has been read.
      const total =
        size === undefined || source.bytes() === 0 ? undefined : Math.round((events * size) / source.bytes())
      bar.update(events, total, 'event')
    }
    const result = await store.events
      .import(source.events(), { name, chunkSize, signal, onProgress })
      .finally(() => bar.end())
    out.print(result, style => {
      const { events, resumed, position } = result
      const earlier = resumed === 0 ? '' : ` (${digits(resumed)} by an earlier call)`
      const imported = `${style.colour.green('Imported')} ${count(events, 'event')}${earlier}`
      return `${imported}; the log is at position ${position}.`
    })
  },
})

async function sizeOf(file: string): Promise<number> {
  try {
    return (await stat(file)).size
  } catch {
    throw new NothingFound({ what: 'file', given: file })
  }
}

function readEvents(file: string): { events(): AsyncIterable<ImportedEvent>; bytes(): number } {
  const input = file === '-' ? process.stdin : createReadStream(file)
  let bytes = 0
  let number = 0
  return {
    bytes: () => bytes,
    async *events() {
      for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
        number++
        bytes += Buffer.byteLength(line) + 1
        if (line.trim() !== '') yield parseEvent(line, `${file === '-' ? 'stdin' : file}:${number}`)
      }
    },
  }
}

function parseEvent(line: string, where: string): ImportedEvent {
  let value: Record<string, unknown>
  try {
    value = JSON.parse(line)
  } catch (error) {
    throw new WrongUsage({ reason: `${where} is not JSON` }, error)
  }
  if (typeof value !== 'object' || value === null || typeof value.stream !== 'string' || typeof value.type !== 'string')
    throw new WrongUsage({ reason: `${where} must be an object with "stream" and "type"` })
  if (value.data === undefined) throw new WrongUsage({ reason: `${where} has no "data", which may be null` })
  const { stream, type, data, id, headers, schemaVersion, correlationId, causationId, userId, createdAt } = value
  const optional = { id, headers, schemaVersion, correlationId, causationId, userId }
  const time = createdAt === undefined ? undefined : new Date(String(createdAt))
  if (Number.isNaN(time?.getTime()))
    throw new WrongUsage({ reason: `${where}: "createdAt" must be a time such as 2026-01-31T12:00:00Z` })
  return { ...(optional as Partial<ImportedEvent>), ...{ stream, type, data }, createdAt: time }
}

export const events: Commands = defineVerbs({
  tail: ['Show the latest events, and new ones as they are appended', tail],
  list: ['Show events, the newest first, a page at a time', list],
  show: ['Show one event in full', show],
  types: ['Show the types of events', types],
  position: ['Show the position that the log had at a time', position],
  why: ['Show why an event is not processed yet', why],
  append: ['Append an event to a stream', append],
  export: ['Write events as NDJSON', exportEvents],
  import: ['Load events from NDJSON', importEvents],
})

/** The filter of the store, from the options of the line. A part that was not given is absent. */
export function eventFilter({
  type,
  stream,
  category,
}: {
  readonly type: readonly string[]
  readonly stream: readonly string[]
  readonly category: readonly string[]
}): { types?: readonly string[]; streams?: readonly string[]; categories?: readonly string[] } {
  return {
    ...(type.length === 0 ? {} : { types: type }),
    ...(stream.length === 0 ? {} : { streams: stream }),
    ...(category.length === 0 ? {} : { categories: category }),
  }
}

/** The widths that a stream and the data of its event have at least. */
const minStream = 18
const minData = 20

/** `#42  12:30:05  order-7@3  OrderPaid  {"method":"card"}` */
export function eventLine(style: Style, event: RecordedEvent): string {
  const { dim, cyan, bold } = style.colour
  const position = `#${event.position}`.padStart(6)
  const time = clockTime(event.createdAt)
  const type = event.type.padEnd(18)
  const data = toJson(event.data) ?? ''
  const place = `@${event.version}`
  // Type and data are what people look for: a long stream gives way, in its middle.
  const room = (style.width ?? Number.POSITIVE_INFINITY) - [position, time, type, ''].join('  ').length - minData
  const name = cutMiddle(event.stream, Math.max(minStream, room) - place.length, style)
  const stream = `${name}${place}`.padEnd(Math.min(24, Math.max(minStream, room)))
  const used = [position, time, stream, type].join('  ').length + 2
  const shown = style.width === undefined ? data : cutTo(data, Math.max(0, style.width - used), style)
  return `${dim(position)}  ${dim(time)}  ${cyan(stream)}  ${bold(type)}  ${shown}`.trimEnd()
}

export function eventInFull(style: Style, event: RecordedEvent): string {
  return fields(style, {
    event: event.id,
    type: style.colour.bold(event.type),
    stream: `${event.stream} at version ${event.version}`,
    position: event.position,
    created: `${event.createdAt.toISOString()} (${ago(event.createdAt, style.now)})`,
    'schema version': event.schemaVersion === 1 ? undefined : event.schemaVersion,
    correlation: event.correlationId,
    causation: event.causationId,
    user: event.userId,
    headers: Object.keys(event.headers).length === 0 ? undefined : toJson(event.headers, 2),
    data: toJson(event.data, 2),
  })
}
