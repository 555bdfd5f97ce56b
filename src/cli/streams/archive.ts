/** `rillflow streams archive` */
import { type Command, defineCommand } from '../command.ts'

export const archiveCommand: Command = defineCommand({
  description: 'Its events stay where they are, and rebuilds still see them; ordinary reads leave it out.',
  arguments: [{ name: 'stream', summary: 'Its name' }],
  options: { reason: { kind: 'text', value: 'TEXT', summary: 'Why, for people' } },
  examples: ['rillflow streams archive order-42 --reason "closed in 2025"'],
  async run({ out, open, arguments: { stream }, options: { reason } }) {
    const { store } = await open()
    await store.streams.archive(stream, { reason })
    out.print(
      await store.streams.describe(stream),
      () => `Archived ${stream}. Take it back with: rillflow streams restore ${stream}`,
    )
  },
})
