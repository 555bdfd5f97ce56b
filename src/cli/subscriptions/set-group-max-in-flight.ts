/** `rillflow subscriptions set-group-max-in-flight` */
import { type Command, defineCommand } from '../command.ts'

/** What a new group has. */
const usual = 1024

export const setGroupMaxInFlightCommand: Command = defineCommand({
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
