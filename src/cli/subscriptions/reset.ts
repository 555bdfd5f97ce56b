/** `rillflow subscriptions reset` */
import { type Command, defineCommand } from '../command.ts'
import { groupOption } from './group.ts'

export const resetCommand: Command = defineCommand({
  description:
    'What was acknowledged beyond the position is forgotten, and delivered again; consumers at work begin there anew.',
  arguments: [
    { name: 'name', summary: 'The subscription', names: 'subscription' },
    { name: 'position', summary: 'It goes on after this one; 0 for the beginning', kind: 'position' },
  ],
  options: groupOption,
  examples: ['rillflow subscriptions reset mailer 0 --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { name, position }, options: { group } }) {
    const { store } = await open()
    const groups = await store.subscriptions.groups(name)
    const told =
      group === undefined ? `${name} (${groups.map(each => each.group).join(', ')})` : `group ${group} of ${name}`
    if (!(await confirm(`move the checkpoint of ${told} to ${position}`))) return
    await store.subscriptions.reset(name, position, group)
    out.print(await store.subscriptions.groups(name), () => `Reset ${told} to ${position}.`)
  },
})
