/** `rillflow dead-letters show` */
import { type Command, defineCommand } from '../command.ts'
import { eventInFull } from '../events/event-line.ts'
import { ago } from '../output/amount.ts'
import { fields } from '../output/table.ts'
import { letterArguments } from './letter.ts'

export const showCommand: Command = defineCommand({
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
