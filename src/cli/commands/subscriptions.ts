/**
 * `rillflow subscriptions`: subscriptions to the log and their groups. A group has its own checkpoint; its partitions share its
 * events. A subscription is also a consumer: `rillflow consumers` pauses, resumes and resets it. No command here needs code.
 *
 *     look       list · groups · status · tail
 *     control    create · repartition · set-max-in-flight
 *
 * `tail` only reads: it takes no lease and acknowledges nothing, unless it is given `--ack`.
 *
 * What can fail: a subscription or group that is not known; the error suggests the nearest name.
 */

import type { From } from '../../consumers/consumer.ts'
import { ConsumerNotFound } from '../../consumers/errors.ts'
import { nearestName } from '../../core/name.ts'
import { everyItem, type Page, type PageOptions } from '../../core/page.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { EventFilter } from '../../events/read/log.ts'
import type { Store } from '../../store.ts'
import type { GroupStatus } from '../../subscriptions/status.ts'
import { type Argument, type Commands, defineCommand, defineVerbs } from '../command.ts'
import { listCommand, pageOptions } from '../list-command.ts'
import { count } from '../output/amount.ts'
import { type Style, toJson } from '../output/output.ts'
import { errorLine, lagOf, paintState } from '../output/state.ts'
import { fields, table } from '../output/table.ts'
import { WrongUsage } from '../report-error.ts'
import { eventFilter, eventFilterOptions, eventLine } from './events.ts'

const subscription = {
  name: 'name',
  summary: 'The name of the subscription',
  completes: 'subscription',
} as const satisfies Argument

const whichGroup = { kind: 'text', value: 'GROUP', default: 'default', summary: 'The name of the group' } as const

const create = defineCommand({
  description:
    'Creates a group and its checkpoint. A group that exists keeps its checkpoint and its options, and the command says which; another filter or number of partitions is refused. A program then runs it with defineSubscription or store.subscribe.',
  arguments: [{ name: 'name', summary: 'The name of the subscription' }],
  options: {
    ...eventFilterOptions,
    group: whichGroup,
    from: {
      kind: 'text',
      value: 'POSITION',
      default: 'start',
      summary: 'The beginning: start, now, or a position, which stands for the events after it',
      aliases: ['start-from'],
    },
    maxInFlight: { kind: 'whole', value: 'COUNT', summary: 'The maximum number of events in flight' },
    partitions: { kind: 'whole', value: 'COUNT', summary: 'The number of partitions, which can run at the same time' },
  },
  examples: [
    'rillflow subscriptions create mailer --type OrderShipped',
    'rillflow subscriptions create audit --from now',
  ],
  async run({ out, open, arguments: { name }, options }) {
    const from = parseFrom(options.from)
    const { group, maxInFlight, partitions } = options
    const { store } = await open()
    const known = await everyItem(page => store.consumers.list({ kind: 'subscription', ...page }))
    const isKept = known.some(each => each.name === name && each.group === group)
    await store.subscriptions.create(name, { ...eventFilter(options), group, from, maxInFlight, partitions })
    const status = await groupStatusOf(store, name, group)
    out.print({ ...status, created: !isKept }, () => {
      const { checkpoint } = status
      if (!isKept) return `Created group ${group} of ${name}, which begins after position ${checkpoint}.`
      const kept = `its checkpoint ${checkpoint}, ${count(status.maxInFlight, 'event')} in flight and ${count(status.partitions.length, 'partition')}`
      return `Group ${group} of ${name} exists already and keeps ${kept}. To begin elsewhere: rillflow subscriptions reset ${name} POSITION`
    })
  },
})

const list = listCommand({
  options: pageOptions,
  examples: ['rillflow subscriptions list'],
  empty: 'There are no subscriptions.',
  list: listSubscriptions,
  columns: () => [
    { title: 'SUBSCRIPTION', of: ({ name }) => name, paint: (_, colour) => colour.cyan },
    { title: 'GROUPS', of: ({ groups }) => groups.join(', '), cut: true },
    {
      title: 'FILTER',
      of: ({ filter }) => (Object.keys(filter).length === 0 ? 'all events' : toJson(filter)),
      cut: true,
    },
  ],
})

const status = defineCommand({
  description: 'Like `consumers status`, with the partitions and the limit of the group.',
  arguments: [subscription],
  options: { group: whichGroup },
  examples: ['rillflow subscriptions status mailer', 'rillflow subscriptions status mailer --group audit'],
  async run({ out, open, arguments: { name }, options: { group } }) {
    const { store } = await open()
    const status = await groupStatusOf(store, name, group)
    out.print(status, style => groupInFull(style, status))
  },
})

const tail = defineCommand({
  description:
    'It only reads: it takes no lease and acknowledges nothing, so it does not disturb the group. With --ack it consumes the events that it prints.',
  arguments: [subscription],
  options: {
    group: whichGroup,
    limit: {
      kind: 'whole',
      value: 'COUNT',
      default: 10,
      summary: 'The maximum number of events; ignored with --follow',
    },
    follow: { kind: 'flag', short: 'f', summary: 'Continue with new events until Ctrl-C' },
    ack: { kind: 'flag', summary: 'Acknowledge the events that are printed' },
  },
  examples: ['rillflow subscriptions tail mailer', 'rillflow subscriptions tail mailer --ack --limit 1'],
  async run({ out, open, arguments: { name }, options: { group, ack, follow, limit }, signal }) {
    const { store } = await open()
    const print = (event: RecordedEvent): void => out.line(event, style => eventLine(style, event))
    const status = await groupStatusOf(store, name, group)
    const { checkpoint, partitions } = status
    const filter: EventFilter = status.filter
    if (ack) {
      const options = { filter, group, signal }
      if (follow) return acknowledge(store, name, options, Number.POSITIVE_INFINITY, print)
      const acked = partitions.reduce((sum, partition) => sum + partition.acked, 0)
      const read = { ...filter, from: checkpoint, limit: limit + acked, signal }
      const available = (await store.events.readAll(read).toArray()).length - acked
      return acknowledge(store, name, options, Math.min(limit, available), print)
    }
    if (follow) for await (const event of store.events.tail({ ...filter, from: checkpoint, signal })) print(event)
    else for await (const event of store.events.readAll({ ...filter, from: checkpoint, limit, signal })) print(event)
  },
})

const groups = listCommand({
  arguments: [subscription],
  options: pageOptions,
  examples: ['rillflow subscriptions groups mailer'],
  empty: 'There are no groups.',
  list: (store, { name, ...page }) => store.subscriptions.groups(name, page),
  columns: () => [
    { title: 'GROUP', of: ({ group }) => group, paint: (_, colour) => colour.cyan },
    { title: 'STATE', of: groupStateOf, paint: (status, colour) => paintState(groupStateOf(status), colour) },
    { title: 'CHECKPOINT', of: ({ checkpoint }) => checkpoint, right: true },
    { title: 'LAG', of: lagOf, right: true },
    { title: 'MAX IN FLIGHT', of: ({ maxInFlight }) => maxInFlight, right: true },
    { title: 'PARTITIONS', of: ({ partitions }) => partitions.length, right: true },
    { title: 'DEAD LETTERS', of: ({ deadLetters }) => deadLetters, right: true },
  ],
})

const defaultMaxInFlight = 1024

const setMaxInFlight = defineCommand({
  arguments: [
    subscription,
    {
      name: 'count',
      summary: `The maximum number of events in flight, by default ${defaultMaxInFlight}`,
      kind: 'whole',
      optional: true,
    },
  ],
  options: { group: whichGroup },
  examples: ['rillflow subscriptions set-max-in-flight mailer 50 --group audit'],
  async run({ out, open, arguments: { name, count = defaultMaxInFlight }, options: { group } }) {
    const { store } = await open()
    await store.subscriptions.setMaxInFlight(name, count, { group })
    const status = await groupStatusOf(store, name, group)
    out.print(status, () => `Group ${group} of ${name} may have ${status.maxInFlight} events in flight.`)
  },
})

const repartition = defineCommand({
  description:
    'The runners that hold the partitions bring all of them to one position; the new partitions begin there. Without a runner this works only if no event is left to deliver.',
  arguments: [subscription, { name: 'partitions', summary: 'The new number of partitions', kind: 'whole' }],
  options: {
    group: whichGroup,
    timeoutMs: {
      kind: 'whole',
      value: 'MS',
      default: 30_000,
      summary: 'The maximum time to wait until all partitions are at one position',
    },
  },
  examples: [
    'rillflow subscriptions repartition mailer 4',
    'rillflow subscriptions repartition mailer 1 --group audit',
  ],
  async run({ out, open, arguments: { name, partitions }, options: { group, timeoutMs }, signal }) {
    const { store } = await open()
    await store.subscriptions.repartition(name, partitions, { group, timeoutMs, signal })
    const status = await groupStatusOf(store, name, group)
    out.print(status, () => `Group ${group} of ${name} has ${count(status.partitions.length, 'partition')}.`)
  },
})

export const subscriptions: Commands = defineVerbs({
  create: ['Create a group without running it', create],
  list: ['Show all subscriptions', list],
  groups: ['Show the groups of a subscription', groups],
  status: ['Show one group with its partitions', status],
  tail: ['Show the events that a group gets next', tail],
  repartition: ['Change the number of partitions of a group', repartition],
  'set-max-in-flight': ['Limit the events that a group has in flight', setMaxInFlight],
})

interface SubscriptionLine {
  readonly name: string
  readonly groups: readonly string[]
  readonly filter: object
}

/** A page of groups, in which the groups of a subscription are one line. If they are on two pages, so is the line. */
async function listSubscriptions(store: Store, page: PageOptions): Promise<Page<SubscriptionLine>> {
  const { items, next } = await store.consumers.list({ kind: 'subscription', ...page })
  const names = [...new Set(items.map(({ name }) => name))]
  const lineOf = async (name: string): Promise<SubscriptionLine> => {
    const groups = await allGroups(store, name)
    return { name, groups: groups.map(({ group }) => group), filter: groups[0]!.filter }
  }
  return { items: await Promise.all(names.map(lineOf)), next }
}

function allGroups(store: Store, name: string): Promise<GroupStatus[]> {
  return everyItem(page => store.subscriptions.groups(name, page))
}

/** The group with its partitions. If there is no such group, the error suggests the nearest name. */
async function groupStatusOf(store: Store, name: string, group: string): Promise<GroupStatus> {
  const groups = await allGroups(store, name)
  const found = groups.find(each => each.group === group)
  if (found !== undefined) return found
  const nearest = nearestName(
    group,
    groups.map(each => each.group),
  )
  throw new ConsumerNotFound({ consumer: name, group, nearest })
}

function parseFrom(text: string): From {
  if (text === 'start' || text === 'now') return text
  if (/^\d{1,15}$/.test(text)) return Number(text)
  throw new WrongUsage({ reason: `--from must be start, now or a position, not ${JSON.stringify(text)}` })
}

/** Consumes events of a group until `count` of them are acknowledged. */
async function acknowledge(
  store: Store,
  name: string,
  { filter, group, signal }: { filter: EventFilter; group: string; signal: AbortSignal },
  count: number,
  print: (event: RecordedEvent) => void,
): Promise<void> {
  if (count <= 0) return
  let done = 0
  for await (const delivery of store.subscribe(name, { ...filter, group, ack: 'manual', signal })) {
    print(delivery)
    await delivery.ack()
    if (++done >= count) return
  }
}

function groupStateOf(status: GroupStatus): string {
  if (status.isPaused) return 'paused'
  return status.partitions.some(({ owner }) => owner !== undefined) ? 'running' : 'stopped'
}

/** A group in full, with its partitions if it has more than one. */
function groupInFull(style: Style, status: GroupStatus): string {
  const owners = [...new Set(status.partitions.flatMap(({ owner }) => owner ?? []))]
  const summary = fields(style, {
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
  if (status.partitions.length === 1) return summary
  const partitions = table(
    style,
    status.partitions,
    [
      { title: 'PARTITION', of: partition => partition.consumer },
      { title: 'CHECKPOINT', of: partition => partition.checkpoint, right: true },
      { title: 'LAG', of: partition => partition.lag, right: true },
      { title: 'ACKED AHEAD', of: partition => partition.acked, right: true },
      { title: 'RETURNED', of: partition => partition.givenBack, right: true },
      { title: 'HELD BY', of: partition => partition.owner, cut: true },
    ],
    '',
  )
  return `${summary}\n\n${partitions}`
}
