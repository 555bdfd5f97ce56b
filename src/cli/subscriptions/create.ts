/** `rillflow subscriptions create` */
import { type Command, defineCommand } from '../command.ts'
import { filterOf, filterOptions } from '../events/filter.ts'
import { WrongUsage } from '../usage.ts'

export const createCommand: Command = defineCommand({
  description: 'One that is there must be the same. Programs run it with store.subscribe.',
  arguments: [{ name: 'name', summary: 'The subscription' }],
  options: {
    ...filterOptions,
    group: { kind: 'text', value: 'GROUP', default: 'default', summary: 'The group to make' },
    startFrom: {
      kind: 'text',
      value: 'POSITION',
      default: 'beginning',
      summary: 'Where to begin: beginning, now, or after a position',
    },
    maxInFlight: { kind: 'whole', value: 'COUNT', summary: 'The most events it may have in hand' },
    partitions: { kind: 'whole', value: 'COUNT', summary: 'Into how many parts it is divided, for as many workers' },
  },
  examples: [
    'rillflow subscriptions create mailer --type OrderShipped',
    'rillflow subscriptions create audit --start-from now',
  ],
  async run({ out, open, arguments: { name }, options }) {
    const startFrom = startOf(options.startFrom)
    const { group, maxInFlight, partitions } = options
    const { store } = await open()
    await store.subscriptions.create(name, { ...filterOf(options), group, startFrom, maxInFlight, partitions })
    const status = await store.subscriptions.status(name, group)
    out.print(status, () => `Created group ${group} of ${name}, after position ${status.checkpoint}.`)
  },
})

function startOf(text: string): 'beginning' | 'now' | number {
  if (text === 'beginning' || text === 'now') return text
  if (/^\d{1,19}$/.test(text)) return Number(text)
  throw new WrongUsage({ reason: `--start-from must be beginning, now or a position, not ${JSON.stringify(text)}` })
}
