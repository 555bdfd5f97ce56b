/** `rillflow subscriptions group-status` */
import { type Command, defineCommand } from '../command.ts'
import { groupInFull } from './group.ts'

export const groupStatusCommand: Command = defineCommand({
  arguments: [
    { name: 'name', summary: 'The subscription', names: 'subscription' },
    { name: 'group', summary: 'Its group' },
  ],
  examples: ['rillflow subscriptions group-status mailer default'],
  async run({ out, open, arguments: { name, group } }) {
    const { store } = await open()
    const status = await store.subscriptions.status(name, group)
    out.print(status, style => groupInFull(style, status))
  },
})
