/** `rillflow daemons demote` */
import { type Command, defineCommand } from '../command.ts'

export const demoteCommand: Command = defineCommand({
  description: 'The other node that has waited longest goes to work.',
  arguments: [{ name: 'node', summary: 'Its node name, as it was started with' }],
  examples: ['rillflow daemons demote west-1'],
  async run({ out, open, arguments: { node } }) {
    const { store } = await open()
    await store.daemons.demote(node)
    out.print(await store.daemons.list(), () => `Demoted ${node}.`)
  },
})
