/** `rillflow streams resolve` */
import { type Command, defineCommand } from '../command.ts'

export const resolveCommand: Command = defineCommand({
  description: 'The first call anywhere makes it; every other one gets the same.',
  arguments: [{ name: 'alias', summary: 'A name of your own, such as a customer number' }],
  options: { category: { kind: 'text', value: 'CATEGORY', summary: 'The category of the stream, should it be made' } },
  examples: ['rillflow streams resolve invoice:2026-0042 --category invoice'],
  async run({ out, open, arguments: { alias }, options: { category } }) {
    const { store } = await open()
    const stream = await store.streams.resolve(alias, { category })
    out.print({ alias, stream }, () => stream)
  },
})
