/** Commands about events: looking at the log, adding to it, carrying it elsewhere. */

import { createReadStream, createWriteStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { pipeline } from 'node:stream/promises'
import type { RecordedEvent } from '../../events/definition.ts'
import type { ImportedEvent } from '../../events/import.ts'
import { type Commands, defineCommand, defineVerbs } from '../command.ts'
import { ago, clockTime, count } from '../output/amount.ts'
import { type Style, toJson } from '../output/output.ts'
import { cutTo, fields } from '../output/table.ts'
import { NothingFound, WrongUsage } from '../report-error.ts'

// The options that say which events are wanted.

export const filterOptions = {
  type: { kind: 'text', many: true, value: 'TYPE', summary: 'Only events of this type', aliases: ['event-type'] },
  stream: { kind: 'text', many: true, value: 'STREAM', summary: 'Only events of this stream', aliases: ['stream-id'] },
  category: {
    kind: 'text',
    many: true,
    value: 'CATEGORY',
    summary: 'Only streams whose name begins with it and a "-"',
  },
} as const

export interface GivenFilter {
  readonly type: readonly string[]
  readonly stream: readonly string[]
  readonly category: readonly string[]
}

/** As the store takes it: what was not given is left out. */
export function filterOf({ type, stream, category }: GivenFilter): {
  types?: readonly string[]
  streams?: readonly string[]
  categories?: readonly string[]
} {
  return {
    ...(type.length === 0 ? {} : { types: type }),
    ...(stream.length === 0 ? {} : { streams: stream }),
    ...(category.length === 0 ? {} : { categories: category }),
  }
}

const tail = defineCommand({
  description:
    'With --json each event is a line of NDJSON. Nothing is skipped and nothing comes twice, whatever commits meanwhile.',
  options: {
    follow: { kind: 'flag', short: 'f', summary: 'Go on with new events until Ctrl-C' },
    limit: { kind: 'whole', default: 10, value: 'COUNT', summary: 'How many of the latest to begin with' },
    after: { kind: 'position', value: 'POSITION', summary: 'All events above this position instead of the latest' },
    ...filterOptions,
  },
  examples: [
    'rillflow events tail --follow',
    'rillflow events tail --type OrderPlaced --limit 100 --json | jq .data.total',
  ],
  async run({ out, open, options, signal }) {
    const { store } = await open()
    const show = (event: RecordedEvent): void => out.line(event, style => eventLine(style, event))
    const filter = filterOf(options)
    const { settled } = await store.events.settled()
    const reading = { ...filter, to: settled, includeArchived: true, signal }
    if (options.after !== undefined) {
      for await (const event of store.events.readAll({ ...reading, after: options.after })) show(event)
    } else {
      for (const event of await latest(after => store.events.readAll({ ...reading, after }), settled, options.limit))
        show(event)
    }
    if (!options.follow) return
    for await (const event of store.events.tail({ ...filter, after: settled, signal })) show(event)
  },
})

/** The log is read forwards, so the end of it is looked for in windows that grow, from the back. */
async function latest(
  read: (after: bigint) => AsyncIterable<RecordedEvent>,
  head: bigint,
  limit: number,
): Promise<RecordedEvent[]> {
  if (limit === 0) return []
  for (let window = BigInt(limit) * 2n; ; window *= 10n) {
    const after = head > window ? head - window : 0n
    let events: RecordedEvent[] = []
    for await (const event of read(after)) {
      events.push(event)
      if (events.length > limit * 2) events = events.slice(-limit)
    }
    if (events.length >= limit || after === 0n) return events.slice(-limit)
  }
}

const show = defineCommand({
  arguments: [{ name: 'event', summary: 'Its id' }],
  examples: ['rillflow events show 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { event: id } }) {
    const { store } = await open()
    const event = await store.events.get(id)
    if (event === undefined) throw new NothingFound({ what: 'event', given: id, hint: 'rillflow events tail' })
    out.print(event, style => eventInFull(style, event))
  },
})

const append = defineCommand({
  description: 'The event is checked as the configuration defines it. An embedded store that is not there is made.',
  arguments: [
    { name: 'stream', summary: 'The stream it belongs to' },
    { name: 'type', summary: 'What happened, in the past tense' },
    { name: 'data', summary: 'JSON', kind: 'json', optional: true },
  ],
  options: {
    expected: {
      kind: 'text',
      value: 'VERSION',
      summary: 'The version the stream must have: a number, empty, exists or any',
    },
    key: { kind: 'text', value: 'KEY', summary: 'An idempotency key: the same append again changes nothing' },
    headers: { kind: 'json', value: 'JSON', summary: 'Headers of the event' },
    correlationId: { kind: 'text', value: 'ID', summary: 'The workflow it is part of' },
    causationId: { kind: 'text', value: 'ID', summary: 'The id of what caused it' },
    user: { kind: 'text', value: 'USER', summary: 'Who did it' },
  },
  examples: [`rillflow events append order-42 OrderPlaced '{"total":99}' --expected empty`],
  async run({ out, open, arguments: { stream, type, data }, options }) {
    const expected = expectedOf(options.expected)
    const { headers } = options
    if (headers !== undefined && (typeof headers !== 'object' || headers === null || Array.isArray(headers)))
      throw new WrongUsage({ reason: '--headers must be an object' })
    const { store } = await open({ creates: true })
    const event = {
      ...{ type, data: data ?? {}, headers: headers as Record<string, unknown> | undefined },
      ...{ correlationId: options.correlationId, causationId: options.causationId, userId: options.user },
    }
    const result = await store.events.append(stream, event, { expected, idempotencyKey: options.key })
    out.print(result, style => {
      const told = result.repeated ? 'Was appended before' : style.colour.green('Appended')
      return `${told}: ${type} to ${stream}, version ${result.version}, position ${result.position}.`
    })
  },
})

function expectedOf(text: string | undefined): number | 'empty' | 'exists' | 'any' | undefined {
  if (text === undefined || text === 'empty' || text === 'exists' || text === 'any') return text
  if (/^\d+$/.test(text)) return Number(text)
  throw new WrongUsage({ reason: `--expected must be a version, empty, exists or any, not ${JSON.stringify(text)}` })
}

const exportEvents = defineCommand({
  description:
    'One event a line, as `events import` takes them, up to the end of the log as it is when the export begins.',
  options: {
    output: { kind: 'text', value: 'FILE', summary: 'Where to. Default, and -: stdout' },
    after: { kind: 'position', value: 'POSITION', summary: 'Only events above this position' },
    to: { kind: 'position', value: 'POSITION', summary: 'Only events up to this position' },
    ...filterOptions,
  },
  examples: [
    'rillflow events export --output events.ndjson',
    'rillflow events export --category order | gzip > orders.ndjson.gz',
  ],
  async run({ out, open, options, signal }) {
    const { store } = await open()
    const { settled } = await store.events.settled()
    const to = options.to !== undefined && options.to < settled ? options.to : settled
    const after = options.after ?? 0n
    const bar = out.progress('Exporting')
    const file = options.output === '-' ? undefined : options.output
    let events = 0
    const filter = { ...filterOf(options), after, to, includeArchived: true, signal }
    const lines = async function* (): AsyncGenerator<string> {
      for await (const event of store.events.readAll(filter)) {
        yield `${toJson(event)}\n`
        events++
        bar.update(Number(event.position - after), Number(to - after), 'position')
      }
    }
    const target = file === undefined ? process.stdout : createWriteStream(file)
    await pipeline(lines, target, { end: file !== undefined }).finally(() => bar.end())
    if (file === undefined) out.note(`${count(events, 'event')} exported.`)
    else out.print({ events, output: file }, () => `Exported ${count(events, 'event')} to ${file}.`)
  },
})

const importEvents = defineCommand({
  description:
    'Each line is an event with stream, type and data; id, headers, schemaVersion, correlationId, causationId, userId and createdAt are kept where they are given. Positions and versions are drawn anew. Under a name an import that was cut off goes on where it was.',
  arguments: [{ name: 'file', summary: 'NDJSON; - for stdin' }],
  options: {
    name: { kind: 'text', value: 'NAME', summary: 'Makes the import resumable' },
    chunkSize: { kind: 'whole', value: 'COUNT', summary: 'Events a transaction' },
  },
  examples: [
    'rillflow events import events.ndjson --name move-2026',
    'gunzip -c orders.ndjson.gz | rillflow events import -',
  ],
  async run({ out, open, arguments: { file }, options, signal }) {
    const size = file === '-' ? undefined : await sizeOf(file)
    const { store } = await open({ creates: true })
    const bar = out.progress('Importing')
    const source = readEvents(file)
    const { name, chunkSize } = options
    const onProgress = ({ events }: { events: number }): void => {
      // How many there will be is guessed from how far in the file they have come.
      const total =
        size === undefined || source.bytes() === 0 ? undefined : Math.round((events * size) / source.bytes())
      bar.update(events, total, 'event')
    }
    const done = await store.events
      .import(source.events(), { name, chunkSize, signal, onProgress })
      .finally(() => bar.end())
    out.print(done, style => {
      const resumed = done.resumed === 0 ? '' : `, ${count(done.resumed, 'event')} of them before`
      return `${style.colour.green('Imported')} ${count(done.events, 'event')}${resumed}; the log is at position ${done.position}.`
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

function parseEvent(line: string, place: string): ImportedEvent {
  let value: Record<string, unknown>
  try {
    value = JSON.parse(line)
  } catch (error) {
    throw new WrongUsage({ reason: `${place} is not JSON` }, error)
  }
  if (typeof value !== 'object' || value === null || typeof value.stream !== 'string' || typeof value.type !== 'string')
    throw new WrongUsage({ reason: `${place} must be an object with "stream" and "type"` })
  if (value.data === undefined) throw new WrongUsage({ reason: `${place} has no "data"; null is some` })
  const { stream, type, data, id, headers, schemaVersion, correlationId, causationId, userId, createdAt } = value
  const kept = { id, headers, schemaVersion, correlationId, causationId, userId }
  const time = createdAt === undefined ? undefined : new Date(String(createdAt))
  if (Number.isNaN(time?.getTime()))
    throw new WrongUsage({ reason: `${place}: "createdAt" must be a time, as 2026-01-31T12:00:00Z is` })
  return {
    ...(kept as Partial<ImportedEvent>),
    ...{ stream, type, data },
    createdAt: time,
  }
}

// An event on one line, and in full.

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

export const events: Commands = defineVerbs({
  tail: ['The latest events, and new ones as they come', tail],
  show: ['One event with all it carries', show],
  append: ['Append an event to a stream', append],
  export: ['Write events as NDJSON', exportEvents],
  import: ['Load events from NDJSON', importEvents],
})
