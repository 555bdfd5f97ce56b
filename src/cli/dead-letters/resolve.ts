/** `rillflow dead-letters resolve` */
import { type Command, defineCommand } from '../command.ts'
import { letterArguments } from './letter.ts'

export const resolveCommand: Command = defineCommand({
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
