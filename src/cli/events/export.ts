/** `rillflow events export` */
import { createWriteStream } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { type Command, defineCommand } from '../command.ts'
import { count } from '../output/amount.ts'
import { toJson } from '../output/output.ts'
import { filterOf, filterOptions } from './filter.ts'

export const exportCommand: Command = defineCommand({
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
    const after = options.after ?? 0
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
