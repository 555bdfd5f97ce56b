/** `rillflow streams restore` */
import { type Command, defineCommand } from '../command.ts'

export const restoreCommand: Command = defineCommand({
  description: 'A tombstoned stream stays as it is.',
  arguments: [{ name: 'stream', summary: 'Its name' }],
  examples: ['rillflow streams restore order-42'],
  async run({ out, open, arguments: { stream } }) {
    const { store } = await open()
    await store.streams.restore(stream)
    const described = await store.streams.describe(stream)
    out.print(described, () =>
      described?.state === 'open' ? `Restored ${stream}.` : `${stream} stays ${described?.state}.`,
    )
  },
})
