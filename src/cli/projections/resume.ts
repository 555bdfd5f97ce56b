/** `rillflow projections resume` */
import { type Command, defineCommand } from '../command.ts'

export const resumeCommand: Command = defineCommand({
  description: 'It goes on at once: a wait after failures is over too.',
  arguments: [{ name: 'name', summary: 'The projection', names: 'projection' }],
  examples: ['rillflow projections resume order-totals'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.projections.resume(name)
    out.print(await store.projections.status(name), () => `Resumed ${name}.`)
  },
})
