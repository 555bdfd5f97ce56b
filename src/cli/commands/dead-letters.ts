/** Commands about dead letters of all consumers; those of handlers are under `handler:<name>`. */
import { type Commands, defineCommand, defineVerbs } from '../command.ts'
import { ago, count, digits } from '../output/amount.ts'
import { paintState } from '../output/state.ts'
import { fields, table } from '../output/table.ts'
import { WrongUsage } from '../report-error.ts'
import { eventInFull } from './events.ts'

// The arguments that name one dead letter.

export const letterArguments = [
  { name: 'consumer', summary: 'Whose it is; handlers are handler:NAME', names: 'dead-letter' },
  { name: 'event', summary: 'The id of its event' },
] as const

const list = defineCommand({
  arguments: [
    { name: 'consumer', summary: 'Only of this one; handlers are handler:NAME', names: 'dead-letter', optional: true },
  ],
  options: {
    state: {
      kind: 'text',
      choices: ['open', 'retrying', 'replayed', 'resolved'],
      value: 'STATE',
      summary: 'Only those',
    },
    type: { kind: 'text', value: 'TYPE', summary: 'Only of events of this type' },
    stream: { kind: 'text', value: 'STREAM', summary: 'Only of events of this stream' },
    since: { kind: 'time', value: 'TIME', summary: 'Only those that failed since: a time, or 15m, 2h, 7d' },
    limit: { kind: 'whole', default: 50, value: 'COUNT', summary: 'How many at most' },
  },
  examples: ['rillflow dead-letters list --state open', 'rillflow dead-letters list order-totals --since 1h --json'],
  async run({ out, open, arguments: { consumer }, options }) {
    const { store } = await open()
    const letters = await store.deadLetters.list({ consumer, ...options })
    out.print(letters, style =>
      table(
        style,
        letters,
        [
          { title: 'CONSUMER', of: each => each.consumer, paint: (_, colour) => colour.cyan },
          { title: 'EVENT', of: each => each.eventId },
          { title: 'TYPE', of: each => each.type },
          {
            title: 'STATE',
            of: each => each.state,
            paint: (each, colour) => paintState(each.state === 'open' ? 'failed' : each.state, colour),
          },
          { title: 'ATTEMPTS', of: each => each.attempts, right: true },
          { title: 'FAILED', of: each => ago(each.lastFailedAt, style.now), paint: (_, colour) => colour.dim },
          { title: 'ERROR', of: each => each.lastError.message, cut: true },
        ],
        'No dead letters.',
      ),
    )
  },
})

const stats = defineCommand({
  examples: ['rillflow dead-letters stats'],
  async run({ out, open }) {
    const { store } = await open()
    const stats = await store.deadLetters.stats()
    out.print(stats, style =>
      table(
        style,
        stats,
        [
          { title: 'CONSUMER', of: each => each.consumer, paint: (_, colour) => colour.cyan },
          {
            title: 'OPEN',
            of: each => digits(each.open),
            right: true,
            paint: (each, colour) => (each.open > 0 ? colour.red : colour.dim),
          },
          { title: 'RETRYING', of: each => digits(each.retrying), right: true },
          { title: 'REPLAYED', of: each => digits(each.replayed), right: true },
          { title: 'RESOLVED', of: each => digits(each.resolved), right: true },
        ],
        'No dead letters.',
      ),
    )
  },
})

const show = defineCommand({
  arguments: letterArguments,
  examples: ['rillflow dead-letters show order-totals 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { consumer, event } }) {
    const { store } = await open()
    const letter = await store.deadLetters.show(consumer, event)
    out.print(letter, style => {
      const errors = letter.errors.map(each => `${ago(each.at, style.now)}: ${each.name}: ${each.message}`)
      return [
        fields(style, {
          consumer: style.colour.cyan(letter.consumer),
          state: letter.state,
          attempts: letter.attempts,
          reason: letter.reason,
          note: letter.note,
          'next try': ago(letter.retryAt, style.now),
          errors: errors.join('\n'),
        }),
        '',
        letter.event === undefined
          ? style.colour.dim('Its event is not in the log any more.')
          : eventInFull(style, letter.event),
      ].join('\n')
    })
  },
})

const retry = defineCommand({
  description:
    'It is tried by whoever runs the consumer; with nobody running it the letter stays open until somebody does.',
  arguments: [
    { name: 'consumer', summary: 'Whose it is; handlers are handler:NAME', names: 'dead-letter' },
    { name: 'event', summary: 'The id of its event', optional: true },
  ],
  options: {
    all: { kind: 'flag', summary: 'All open letters of the consumer that match' },
    type: { kind: 'text', value: 'TYPE', summary: 'With --all: only of events of this type' },
    since: { kind: 'time', value: 'TIME', summary: 'With --all: only those that failed since: a time, or 15m, 2h, 7d' },
    limit: { kind: 'whole', value: 'COUNT', summary: 'With --all: how many at most' },
    perSecond: { kind: 'whole', value: 'COUNT', default: 50, summary: 'With --all: how many a second' },
  },
  examples: [
    'rillflow dead-letters retry order-totals 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001',
    'rillflow dead-letters retry order-totals --all --type OrderPaid',
  ],
  async run({ out, open, arguments: { consumer, event }, options }) {
    const { all, type, since, limit, perSecond } = options
    if ((event === undefined) === !all)
      throw new WrongUsage({
        reason: 'Name one event, or say --all',
        hint: `rillflow dead-letters retry ${consumer} --all`,
      })
    const { store } = await open()
    const asked = await store.deadLetters.retry(consumer, event ?? { type, since, limit }, { perSecond })
    out.print({ consumer, ...asked }, () => {
      const told = `Asked for another try of ${count(asked.requested, 'dead letter')} of ${consumer}.`
      return asked.isRunning || asked.requested === 0 ? told : `${told} Nobody runs it now: rillflow run`
    })
  },
})

const resolve = defineCommand({
  description: 'Its event is not applied. It is opened again should the event fail again.',
  arguments: letterArguments,
  options: { note: { kind: 'text', value: 'TEXT', required: true, summary: 'Why; it is kept with the letter' } },
  examples: [
    'rillflow dead-letters resolve order-totals 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --note "refunded by hand"',
  ],
  async run({ out, open, arguments: { consumer, event }, options: { note } }) {
    const { store } = await open()
    await store.deadLetters.resolve(consumer, event, note)
    out.print(
      await store.deadLetters.show(consumer, event),
      () => `Resolved the dead letter of ${event} at ${consumer}.`,
    )
  },
})

const deleteDeadLetter = defineCommand({
  description: 'With its errors and its history. The event itself stays in the log.',
  arguments: letterArguments,
  examples: ['rillflow dead-letters delete order-totals 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { consumer, event } }) {
    const { store } = await open()
    const { state, attempts } = await store.deadLetters.show(consumer, event)
    if (!(await confirm(`delete the dead letter of ${event} at ${consumer} (${state}, ${attempts} attempts)`))) return
    await store.deadLetters.delete(consumer, event)
    out.print({ consumer, eventId: event, deleted: true }, () => `Deleted the dead letter of ${event} at ${consumer}.`)
  },
})

export const deadLetters: Commands = defineVerbs({
  list: ['Dead letters by consumer', list],
  stats: ['How many there are in each state', stats],
  show: ['One with its event and its errors', show],
  retry: ['Ask for another try', retry],
  resolve: ['Close one with a note', resolve],
  delete: ['Remove one for good', deleteDeadLetter],
})
