/** `rillflow subscriptions status` */
import { type Command, defineCommand } from '../command.ts'
import { groupInFull } from './group.ts'

export const statusCommand: Command = defineCommand({
  arguments: [{ name: 'name', summary: 'The subscription', names: 'subscription' }],
  options: { group: { kind: 'text', value: 'GROUP', default: 'default', summary: 'Another group' } },
  examples: ['rillflow subscriptions status mailer'],
  async run({ out, open, arguments: { name }, options: { group } }) {
    const { store } = await open()
    const status = await store.subscriptions.status(name, group)
    out.print(status, style => groupInFull(style, status))
  },
})
