/** `rillflow daemons promote` */
import { type Command, defineCommand } from '../command.ts'

export const promoteCommand: Command = defineCommand({
  description: 'The node that is at work becomes a standby.',
  arguments: [{ name: 'node', summary: 'Its node name, as it was started with' }],
  examples: ['rillflow daemons promote west-1'],
  async run({ out, open, arguments: { node } }) {
    const { store } = await open()
    await store.daemons.promote(node)
    out.print(await store.daemons.list(), () => `Promoted ${node}.`)
  },
})
