/** `rillflow dead-letters retry` */
import { type Command, defineCommand } from '../command.ts'
import { count } from '../output/amount.ts'
import { WrongUsage } from '../usage.ts'

export const retryCommand: Command = defineCommand({
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
