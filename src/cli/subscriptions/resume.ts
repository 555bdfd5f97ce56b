/** `rillflow subscriptions resume` */
import { type Command, defineCommand } from '../command.ts'
import { groupOption } from './group.ts'

export const resumeCommand: Command = defineCommand({
  description: 'Consumers at work anywhere go on at once.',
  arguments: [{ name: 'name', summary: 'The subscription', names: 'subscription' }],
  options: groupOption,
  examples: ['rillflow subscriptions resume mailer', 'rillflow subscriptions resume mailer --group audit'],
  async run({ out, open, arguments: { name }, options: { group } }) {
    const { store } = await open()
    await store.subscriptions.resume(name, group)
    const told = group === undefined ? name : `group ${group} of ${name}`
    out.print(await store.subscriptions.groups(name), () => `Resumed ${told}.`)
  },
})
