/** `rillflow projections reset` */
import { type Command, defineCommand } from '../command.ts'

export const resetCommand: Command = defineCommand({
  description: 'The read model is kept, so events may count twice or be left out. To fill it anew, rebuild it instead.',
  arguments: [
    { name: 'name', summary: 'The projection', names: 'projection' },
    { name: 'position', summary: 'It goes on after this one; 0 for the beginning', kind: 'position' },
  ],
  examples: ['rillflow projections reset order-totals 0 --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { name, position } }) {
    const { store } = await open()
    const { checkpoint } = await store.projections.status(name)
    if (!(await confirm(`move the checkpoint of ${name} from ${checkpoint} to ${position}, and keep its read model`)))
      return
    await store.projections.reset(name, position)
    out.print(await store.projections.status(name), () => `Reset ${name} from ${checkpoint} to ${position}.`)
  },
})
