/** `rillflow subscriptions pause` */
import { type Command, defineCommand } from '../command.ts'
import { groupOption } from './group.ts'

export const pauseCommand: Command = defineCommand({
  description: 'What is out can still be acknowledged.',
  arguments: [{ name: 'name', summary: 'The subscription', names: 'subscription' }],
  options: groupOption,
  examples: ['rillflow subscriptions pause mailer', 'rillflow subscriptions pause mailer --group audit'],
  async run({ out, open, arguments: { name }, options: { group } }) {
    const { store } = await open()
    await store.subscriptions.pause(name, group)
    const told = group === undefined ? name : `group ${group} of ${name}`
    out.print(await store.subscriptions.groups(name), () => `Paused ${told}.`)
  },
})
