/** `rillflow dead-letters delete` */
import { type Command, defineCommand } from '../command.ts'
import { letterArguments } from './letter.ts'

export const deleteCommand: Command = defineCommand({
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
