/** `rillflow projections pause` */
import { type Command, defineCommand } from '../command.ts'

export const pauseCommand: Command = defineCommand({
  description: 'A batch under way still ends; nothing after it begins, in any process.',
  arguments: [{ name: 'name', summary: 'The projection', names: 'projection' }],
  examples: ['rillflow projections pause order-totals'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.projections.pause(name)
    out.print(await store.projections.status(name), () => `Paused ${name}.`)
  },
})
