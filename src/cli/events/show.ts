/** `rillflow events show` */
import { type Command, defineCommand } from '../command.ts'
import { NothingFound } from '../usage.ts'
import { eventInFull } from './event-line.ts'

export const showCommand: Command = defineCommand({
  arguments: [{ name: 'event', summary: 'Its id' }],
  examples: ['rillflow events show 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { event: id } }) {
    const { store } = await open()
    const event = await store.events.get(id)
    if (event === undefined) throw new NothingFound({ what: 'event', given: id, hint: 'rillflow events tail' })
    out.print(event, style => eventInFull(style, event))
  },
})
