/** `rillflow events tail` */
import type { RecordedEvent } from '../../events/definition.ts'
import { type Command, defineCommand } from '../command.ts'
import { eventLine } from './event-line.ts'
import { filterOf, filterOptions } from './filter.ts'

export const tailCommand: Command = defineCommand({
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
  read: (after: number) => AsyncIterable<RecordedEvent>,
  head: number,
  limit: number,
): Promise<RecordedEvent[]> {
  if (limit === 0) return []
  for (let window = Number(limit) * 2; ; window *= 10) {
    const after = head > window ? head - window : 0
    let events: RecordedEvent[] = []
    for await (const event of read(after)) {
      events.push(event)
      if (events.length > limit * 2) events = events.slice(-limit)
    }
    if (events.length >= limit || after === 0) return events.slice(-limit)
  }
}
