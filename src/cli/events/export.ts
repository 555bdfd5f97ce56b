/** `rillflow events export` */
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { finished } from 'node:stream/promises'
import { type Command, defineCommand } from '../command.ts'
import { count } from '../output/amount.ts'
import { toJson } from '../output/output.ts'
import { filterOf, filterOptions } from './filter.ts'

export const exportCommand: Command = defineCommand({
  description:
    'One event a line, as `events import` takes them, up to the end of the log as it is when the export begins.',
  options: {
    output: { kind: 'text', value: 'FILE', summary: 'Where to. Default: stdout' },
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
    const target = options.output === undefined ? process.stdout : createWriteStream(options.output)
    let events = 0
    try {
      for await (const event of store.events.readAll({
        ...filterOf(options),
        after,
        to,
        includeArchived: true,
        signal,
      })) {
        if (!target.write(`${toJson(event)}\n`)) await once(target, 'drain', { signal })
        events++
        bar.update(Number(event.position - after), Number(to - after), 'position')
      }
    } finally {
      bar.end()
      if (target !== process.stdout) await finished(target.end())
    }
    if (options.output === undefined) out.note(`${count(events, 'event')} exported.`)
    else out.print({ events, output: options.output }, () => `Exported ${count(events, 'event')} to ${options.output}.`)
  },
})
