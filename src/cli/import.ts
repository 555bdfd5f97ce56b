/** `rillflow import`: brings an archive into an empty store. */
import { importedText, rowsOf } from './archive.ts'
import { type Command, defineCommand } from './command.ts'

export const importCommand: Command = defineCommand({
  description:
    'All of it or nothing, into a store that is not there yet or empty. Every checksum is looked at first. An archive holds SQL that is run: import only what you would restore a dump of. `events import` takes events from anywhere.',
  arguments: [{ name: 'input', summary: 'The folder that `rillflow export` has made' }],
  examples: ['rillflow import ./shop-2026 --url postgres://localhost/shop'],
  async run({ out, open, arguments: { input }, signal }) {
    const { store, where } = await open({ migrate: 'manual', creates: true })
    const bar = out.progress('Importing')
    const manifest = await store.import({ input, signal, onProgress: rowsOf(bar) }).finally(() => bar.end())
    out.print({ input, ...manifest }, style => importedText(style, `schema ${store.schema.name} of ${where}`, manifest))
  },
})
