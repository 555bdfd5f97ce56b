/** `rillflow subscriptions tail` */
import type { RecordedEvent } from '../../events/definition.ts'
import type { EventFilter } from '../../events/read/log.ts'
import type { Store } from '../../store.ts'
import { type Command, defineCommand } from '../command.ts'
import { eventLine } from '../events/event-line.ts'

export const tailCommand: Command = defineCommand({
  description:
    'Only looks: no lease is taken, nothing is acknowledged, whoever runs the group notices nothing. With --ack it is a consumer of the group, and what it prints is done.',
  arguments: [{ name: 'name', summary: 'The subscription', names: 'subscription' }],
  options: {
    group: { kind: 'text', value: 'GROUP', default: 'default', summary: 'Another group' },
    limit: { kind: 'whole', value: 'COUNT', default: 10, summary: 'How many at most' },
    follow: { kind: 'flag', short: 'f', summary: 'Go on with new events until Ctrl-C; --limit does not count then' },
    ack: { kind: 'flag', summary: 'Acknowledge what is printed' },
  },
  examples: ['rillflow subscriptions tail mailer', 'rillflow subscriptions tail mailer --ack --limit 1'],
  async run({ out, open, arguments: { name }, options, signal }) {
    const { store } = await open()
    const { group, ack, follow, limit } = options
    const show = (event: RecordedEvent): void => out.line(event, style => eventLine(style, event))
    const status = await store.subscriptions.status(name, group)
    const filter = (await store.subscriptions.list()).find(each => each.name === name)!.filter as EventFilter
    const { checkpoint } = status
    if (ack) {
      const acked = status.partitions.reduce((sum, each) => sum + each.acked, 0)
      const most = follow ? Number.POSITIVE_INFINITY : limit
      const there = follow
        ? most
        : (await store.events.readAll({ ...filter, after: checkpoint, limit: limit + acked, signal }).toArray())
            .length - acked
      return acknowledge(store, name, { filter, group, signal }, Math.min(most, there), show)
    }
    if (follow) for await (const event of store.events.tail({ ...filter, after: checkpoint, signal })) show(event)
    else for await (const event of store.events.readAll({ ...filter, after: checkpoint, limit, signal })) show(event)
  },
})

async function acknowledge(
  store: Store,
  name: string,
  { filter, group, signal }: { filter: EventFilter; group: string; signal: AbortSignal },
  count: number,
  show: (event: RecordedEvent) => void,
): Promise<void> {
  if (count <= 0) return
  let done = 0
  for await (const delivery of store.subscribe(name, { ...filter, group, ack: 'manual', signal })) {
    show(delivery)
    await delivery.ack()
    if (++done >= count) return
  }
}
