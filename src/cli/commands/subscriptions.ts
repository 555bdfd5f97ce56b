/** Commands about subscriptions and their groups. None of them needs code. */
import type { RecordedEvent } from '../../events/definition.ts'
import type { EventFilter } from '../../events/read-log.ts'
import type { Store } from '../../store.ts'
import type { GroupStatus } from '../../subscriptions/status.ts'
import { type Commands, defineCommand, defineVerbs } from '../command.ts'
import { type Style, toJson } from '../output/output.ts'
import { errorLine, lagOf, paintState } from '../output/state.ts'
import { fields, table } from '../output/table.ts'
import { WrongUsage } from '../report-error.ts'
import { eventLine, filterOf, filterOptions } from './events.ts'

// The option that names a group, and a group on a line.

export const groupOption = {
  group: { kind: 'text', value: 'GROUP', summary: 'Only this group' },
} as const

export function groupStateOf(status: GroupStatus): string {
  if (status.isPaused) return 'paused'
  return status.partitions.some(each => each.owner !== undefined) ? 'running' : 'stopped'
}

/** A group in full, with its partitions if it has several. */
export function groupInFull(style: Style, status: GroupStatus): string {
  const owners = [...new Set(status.partitions.flatMap(each => each.owner ?? []))]
  const shown = fields(style, {
    subscription: style.colour.cyan(status.subscription),
    group: status.group,
    state: groupStateOf(status),
    checkpoint: `${status.checkpoint} of ${status.head}`,
    lag: lagOf(status),
    'max in flight': status.maxInFlight,
    'held by': owners.length === 0 ? undefined : owners.join(', '),
    'dead letters': status.deadLetters,
    'last error': errorLine(status.lastError),
  })
  if (status.partitions.length === 1) return shown
  const partitions = table(
    style,
    status.partitions,
    [
      { title: 'PARTITION', of: each => each.consumer },
      { title: 'CHECKPOINT', of: each => each.checkpoint, right: true },
      { title: 'LAG', of: each => each.lag, right: true },
      { title: 'ACKED BEYOND', of: each => each.acked, right: true },
      { title: 'GIVEN BACK', of: each => each.givenBack, right: true },
      { title: 'HELD BY', of: each => each.owner, cut: true },
    ],
    '',
  )
  return `${shown}\n\n${partitions}`
}

const create = defineCommand({
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

function startOf(text: string): 'beginning' | 'now' | bigint {
  if (text === 'beginning' || text === 'now') return text
  if (/^\d{1,19}$/.test(text)) return BigInt(text)
  throw new WrongUsage({ reason: `--start-from must be beginning, now or a position, not ${JSON.stringify(text)}` })
}

const list = defineCommand({
  examples: ['rillflow subscriptions list'],
  async run({ out, open }) {
    const { store } = await open()
    const subscriptions = await store.subscriptions.list()
    out.print(subscriptions, style =>
      table(
        style,
        subscriptions,
        [
          { title: 'SUBSCRIPTION', of: each => each.name, paint: (_, colour) => colour.cyan },
          { title: 'GROUPS', of: each => each.groups.join(', '), cut: true },
          {
            title: 'WANTS',
            of: each => (Object.keys(each.filter).length === 0 ? 'all events' : toJson(each.filter)),
            cut: true,
          },
        ],
        'No subscriptions.',
      ),
    )
  },
})

const status = defineCommand({
  arguments: [{ name: 'name', summary: 'The subscription', names: 'subscription' }],
  options: { group: { kind: 'text', value: 'GROUP', default: 'default', summary: 'Another group' } },
  examples: ['rillflow subscriptions status mailer'],
  async run({ out, open, arguments: { name }, options: { group } }) {
    const { store } = await open()
    const status = await store.subscriptions.status(name, group)
    out.print(status, style => groupInFull(style, status))
  },
})

const pause = defineCommand({
  description: 'What is out can still be acknowledged.',
  arguments: [{ name: 'name', summary: 'The subscription', names: 'subscription' }],
  options: groupOption,
  examples: ['rillflow subscriptions pause mailer', 'rillflow subscriptions pause mailer --group audit'],
  async run({ out, open, arguments: { name }, options: { group } }) {
    const { store } = await open()
    await store.subscriptions.pause(name, group)
    const told = group === undefined ? name : `group ${group} of ${name}`
    out.print(await store.subscriptions.groups(name), () => `Paused ${told}.`)
  },
})

const resume = defineCommand({
  description: 'Consumers at work anywhere go on at once.',
  arguments: [{ name: 'name', summary: 'The subscription', names: 'subscription' }],
  options: groupOption,
  examples: ['rillflow subscriptions resume mailer', 'rillflow subscriptions resume mailer --group audit'],
  async run({ out, open, arguments: { name }, options: { group } }) {
    const { store } = await open()
    await store.subscriptions.resume(name, group)
    const told = group === undefined ? name : `group ${group} of ${name}`
    out.print(await store.subscriptions.groups(name), () => `Resumed ${told}.`)
  },
})

const reset = defineCommand({
  description:
    'What was acknowledged beyond the position is forgotten, and delivered again; consumers at work begin there anew.',
  arguments: [
    { name: 'name', summary: 'The subscription', names: 'subscription' },
    { name: 'position', summary: 'It goes on after this one; 0 for the beginning', kind: 'position' },
  ],
  options: groupOption,
  examples: ['rillflow subscriptions reset mailer 0 --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { name, position }, options: { group } }) {
    const { store } = await open()
    const groups = await store.subscriptions.groups(name)
    const told =
      group === undefined ? `${name} (${groups.map(each => each.group).join(', ')})` : `group ${group} of ${name}`
    if (!(await confirm(`move the checkpoint of ${told} to ${position}`))) return
    await store.subscriptions.reset(name, position, group)
    out.print(await store.subscriptions.groups(name), () => `Reset ${told} to ${position}.`)
  },
})

const tail = defineCommand({
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

const groups = defineCommand({
  arguments: [{ name: 'name', summary: 'The subscription', names: 'subscription' }],
  examples: ['rillflow subscriptions groups mailer'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    const groups = await store.subscriptions.groups(name)
    out.print(groups, style =>
      table(
        style,
        groups,
        [
          { title: 'GROUP', of: each => each.group, paint: (_, colour) => colour.cyan },
          { title: 'STATE', of: groupStateOf, paint: (each, colour) => paintState(groupStateOf(each), colour) },
          { title: 'CHECKPOINT', of: each => each.checkpoint, right: true },
          { title: 'LAG', of: lagOf, right: true },
          { title: 'MAX IN FLIGHT', of: each => each.maxInFlight, right: true },
          { title: 'PARTITIONS', of: each => each.partitions.length, right: true },
          { title: 'DEAD LETTERS', of: each => each.deadLetters, right: true },
        ],
        'No groups.',
      ),
    )
  },
})

const groupStatus = defineCommand({
  arguments: [
    { name: 'name', summary: 'The subscription', names: 'subscription' },
    { name: 'group', summary: 'Its group' },
  ],
  examples: ['rillflow subscriptions group-status mailer default'],
  async run({ out, open, arguments: { name, group } }) {
    const { store } = await open()
    const status = await store.subscriptions.status(name, group)
    out.print(status, style => groupInFull(style, status))
  },
})

/** What a new group has. */
const usual = 1024

const setGroupMaxInFlight = defineCommand({
  arguments: [
    { name: 'name', summary: 'The subscription', names: 'subscription' },
    { name: 'group', summary: 'Its group' },
    {
      name: 'value',
      summary: `The most events it may have in hand; without it the usual ${usual}`,
      kind: 'whole',
      optional: true,
    },
  ],
  examples: ['rillflow subscriptions set-group-max-in-flight mailer default 50'],
  async run({ out, open, arguments: { name, group, value = usual } }) {
    const { store } = await open()
    await store.subscriptions.setMaxInFlight(name, group, value)
    const status = await store.subscriptions.status(name, group)
    out.print(status, () => `Group ${group} of ${name} may have ${status.maxInFlight} events in hand.`)
  },
})

export const subscriptions: Commands = defineVerbs({
  create: ['Make a group without running it', create],
  list: ['All subscriptions', list],
  status: ['The default group of a subscription', status],
  pause: ['Deliver nothing more for now', pause],
  resume: ['Deliver again', resume],
  reset: ['Move a checkpoint', reset],
  tail: ['What a group would get next', tail],
  groups: ['The groups of a subscription', groups],
  'group-status': ['One group in detail', groupStatus],
  'set-group-max-in-flight': ['Limit what a group may have in hand', setGroupMaxInFlight],
})
