/** `rillflow events import` */
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import type { ImportedEvent } from '../../events/import/import.ts'
import { type Command, defineCommand } from '../command.ts'
import { count } from '../output/amount.ts'
import { NothingFound, WrongUsage } from '../usage.ts'

export const importCommand: Command = defineCommand({
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
