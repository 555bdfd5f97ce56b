/**
 * `rillflow dead-letters`: events that a consumer or handler failed on.
 *
 *     look       list · stats · show
 *     control    retry · resolve · delete
 *
 *     open ──► retrying ──► replayed          retrying ──► open, if it fails again
 *      └─────► resolved, with a note          resolved ──► open, if its event fails again
 *     parked ──► open, when the earlier one of its stream that holds it back is closed
 *
 * A retry is only requested here. The runner that has the consumer or handler carries it out; until one is started, the
 * dead letter stays open.
 *
 * What can fail: a dead letter that does not exist (`DeadLetterNotFound`).
 */

import { ownerName } from '../../consumers/dead-letters/owner.ts'
import { kebabCase } from '../arguments.ts'
import { type Argument, type Commands, defineCommand, defineVerbs } from '../command.ts'
import { listCommand, pageOptions } from '../list-command.ts'
import { ago, count, digits } from '../output/amount.ts'
import { paintState } from '../output/state.ts'
import { fields } from '../output/table.ts'
import { WrongUsage } from '../report-error.ts'
import { eventInFull } from './events.ts'

const owner = {
  name: 'owner',
  summary: 'The consumer or handler that failed',
  completes: 'dead-letter',
} as const satisfies Argument

const event = { name: 'event', summary: 'The id of the event' } as const satisfies Argument

const list = listCommand({
  arguments: [
    {
      name: 'owner',
      summary: 'Only dead letters of this consumer or handler',
      completes: 'dead-letter',
      optional: true,
    },
  ],
  options: {
    state: {
      kind: 'text',
      choices: ['open', 'retrying', 'parked', 'replayed', 'resolved'],
      value: 'STATE',
      summary: 'Only dead letters in this state',
    },
    type: { kind: 'text', value: 'TYPE', summary: 'Only events of this type' },
    stream: { kind: 'text', value: 'STREAM', summary: 'Only events of this stream' },
    since: {
      kind: 'time',
      value: 'TIME',
      summary: 'Only dead letters that failed after this: a time, or an age such as 15m, 2h, 7d',
    },
    ...pageOptions,
  },
  examples: ['rillflow dead-letters list --state open', 'rillflow dead-letters list order-totals --since 1h --json'],
  empty: 'There are no dead letters.',
  list: (store, { owner, ...filter }) => store.deadLetters.list({ ...filter, of: owner, order: 'newest' }),
  columns: ({ now }) => [
    { title: 'OWNER', of: ownerName, paint: (_, colour) => colour.cyan },
    { title: 'EVENT', of: ({ eventId }) => eventId },
    { title: 'TYPE', of: ({ type }) => type, cut: true },
    {
      title: 'STATE',
      of: ({ state }) => state,
      paint: ({ state }, colour) => paintState(state === 'open' ? 'failed' : state, colour),
    },
    { title: 'ATTEMPTS', of: ({ attempts }) => attempts, right: true, leftOut: 3 },
    { title: 'FAILED', of: ({ lastFailedAt }) => ago(lastFailedAt, now), leftOut: 1, paint: (_, colour) => colour.dim },
    { title: 'ERROR', of: ({ lastError }) => lastError.message, below: true },
  ],
})

const groups = listCommand({
  description: 'Numbers and ids in messages are ignored. The latest 10000 failures are grouped.',
  options: pageOptions,
  examples: ['rillflow dead-letters groups', 'rillflow dead-letters groups --json'],
  empty: 'There are no open dead letters.',
  list: (store, given) => store.deadLetters.groups(given),
  columns: ({ now }) => [
    { title: 'OWNER', of: ownerName, paint: (_, colour) => colour.cyan },
    { title: 'COUNT', of: each => digits(each.count), right: true },
    { title: 'LAST', of: ({ lastFailedAt }) => ago(lastFailedAt, now), paint: (_, colour) => colour.dim },
    { title: 'ERROR', of: ({ latestError }) => latestError.message, cut: true },
  ],
})

const stats = listCommand({
  options: pageOptions,
  examples: ['rillflow dead-letters stats'],
  empty: 'There are no dead letters.',
  list: (store, page) => store.deadLetters.stats(page),
  columns: () => [
    { title: 'OWNER', of: ownerName, paint: (_, colour) => colour.cyan },
    {
      title: 'OPEN',
      of: ({ open }) => digits(open),
      right: true,
      paint: ({ open }, colour) => (open > 0 ? colour.red : colour.dim),
    },
    { title: 'RETRYING', of: ({ retrying }) => digits(retrying), right: true },
    { title: 'PARKED', of: ({ parked }) => digits(parked), right: true },
    { title: 'REPLAYED', of: ({ replayed }) => digits(replayed), right: true },
    { title: 'RESOLVED', of: ({ resolved }) => digits(resolved), right: true },
  ],
})

const show = defineCommand({
  arguments: [owner, event],
  examples: ['rillflow dead-letters show order-totals 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { owner, event } }) {
    const { store } = await open()
    const deadLetter = await store.deadLetters.show(owner, event)
    out.print(deadLetter, style => {
      const errors = deadLetter.errors.map(({ at, name, message }) => `${ago(at, style.now)}: ${name}: ${message}`)
      const summary = fields(style, {
        [deadLetter.handler === undefined ? 'consumer' : 'handler']: style.colour.cyan(ownerName(deadLetter)),
        state: deadLetter.state,
        attempts: deadLetter.attempts,
        reason: deadLetter.reason && kebabCase(deadLetter.reason),
        note: deadLetter.note,
        'next attempt': ago(deadLetter.retryAt, style.now),
        errors: errors.join('\n'),
      })
      const eventText =
        deadLetter.event === undefined
          ? style.colour.dim('Its event is no longer in the log.')
          : eventInFull(style, deadLetter.event)
      return `${summary}\n\n${eventText}`
    })
  },
})

/** Which of the open ones. */
const matchOptions = {
  type: { kind: 'text', value: 'TYPE', summary: 'With --all: only events of this type' },
  fingerprint: { kind: 'text', value: 'FINGERPRINT', summary: 'With --all: only failures that are alike' },
  since: {
    kind: 'time',
    value: 'TIME',
    summary: 'With --all: only dead letters that failed after this: a time, or an age such as 15m, 2h, 7d',
  },
} as const

const retry = defineCommand({
  description:
    'A runner that has the consumer or handler retries the event. Without one the dead letter stays open until one is started.',
  arguments: [owner, { ...event, optional: true }],
  options: {
    all: { kind: 'flag', summary: 'Retry all open dead letters that match' },
    data: { kind: 'json', value: 'JSON', summary: 'Retry a handler with this data instead of that of the event' },
    ...matchOptions,
    limit: { kind: 'whole', value: 'COUNT', summary: 'With --all: the maximum number of dead letters' },
    perSecond: {
      kind: 'whole',
      value: 'COUNT',
      default: 50,
      summary: 'With --all: the maximum number of retries in a second',
    },
  },
  examples: [
    'rillflow dead-letters retry order-totals 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001',
    'rillflow dead-letters retry order-totals --all --type OrderPaid',
    `rillflow dead-letters retry charge 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --data '{"cents":1250}'`,
  ],
  async run({ out, open, arguments: { owner, event }, options }) {
    const { all, data, type, fingerprint, since, limit, perSecond } = options
    if ((event === undefined) === !all)
      throw new WrongUsage({
        reason: 'Give either the id of one event or --all',
        hint: `rillflow dead-letters retry ${owner} --all`,
      })
    if (all && data !== undefined) throw new WrongUsage({ reason: '--data is for one dead letter, not for --all' })
    const { store } = await open()
    const result =
      event === undefined
        ? await store.deadLetters.retryAll({ of: owner, type, fingerprint, since, limit }, { perSecond })
        : await store.deadLetters.retry(owner, event, data === undefined ? {} : { data })
    out.print({ of: owner, ...result }, () => {
      const requested = `Requested a retry of ${count(result.requested, 'dead letter')} of ${owner}.`
      if (result.isRunning || result.requested === 0) return requested
      return `${requested} No runner has ${owner} now; start one with: rillflow run`
    })
  },
})

const resolve = defineCommand({
  description: 'The event is not applied. If it fails again, the dead letter is opened again.',
  arguments: [owner, { ...event, optional: true }],
  options: {
    note: { kind: 'text', value: 'TEXT', required: true, summary: 'The reason, which is stored with the dead letter' },
    all: { kind: 'flag', summary: 'Resolve all open dead letters that match, at most 10 000' },
    ...matchOptions,
  },
  examples: [
    'rillflow dead-letters resolve order-totals 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --note "refunded by hand"',
    'rillflow dead-letters resolve order-totals --all --type OrderPaid --note "refunded by hand"',
  ],
  async run({ out, open, arguments: { owner, event }, options: { note, all, type, fingerprint, since } }) {
    if ((event === undefined) === !all)
      throw new WrongUsage({
        reason: 'Give either the id of one event or --all',
        hint: `rillflow dead-letters resolve ${owner} --all --note TEXT`,
      })
    const { store } = await open()
    if (event === undefined) {
      const result = await store.deadLetters.resolveAll({ of: owner, type, fingerprint, since }, { note })
      return out.print({ of: owner, ...result }, () => `Resolved ${count(result.resolved, 'dead letter')} of ${owner}.`)
    }
    await store.deadLetters.resolve(owner, event, { note })
    const deadLetter = await store.deadLetters.show(owner, event)
    out.print(deadLetter, () => `Resolved the dead letter of event ${event} for ${owner}.`)
  },
})

const deleteDeadLetter = defineCommand({
  description: 'Its errors and its history are deleted too. The event stays in the log.',
  arguments: [owner, event],
  examples: ['rillflow dead-letters delete order-totals 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { owner, event } }) {
    const { store } = await open()
    const { state, attempts } = await store.deadLetters.show(owner, event)
    const deadLetter = `the dead letter of event ${event} for ${owner}`
    if (!(await confirm(`delete ${deadLetter} (${state}, ${count(attempts, 'attempt')})`))) return
    await store.deadLetters.delete(owner, event)
    out.print({ of: owner, eventId: event, deleted: true }, () => `Deleted ${deadLetter}.`)
  },
})

export const deadLetters: Commands = defineVerbs({
  list: ['Show dead letters, the latest failure first', list],
  groups: ['Show failures that are alike together, the largest group first', groups],
  stats: ['Count the dead letters in each state', stats],
  show: ['Show one dead letter with its event and its errors', show],
  retry: ['Request a retry of one dead letter, or of all that match', retry],
  resolve: ['Close a dead letter with a note', resolve],
  delete: ['Delete a dead letter', deleteDeadLetter],
})
