/** `rillflow dead-letters list` */
import { type Command, defineCommand } from '../command.ts'
import { ago } from '../output/amount.ts'
import { paintState } from '../output/consumer.ts'
import { table } from '../output/table.ts'

export const listCommand: Command = defineCommand({
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
