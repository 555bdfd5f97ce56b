/** `rillflow export`: the whole store, or with `--tenant` one tenant, as an archive. */
import { archiveOptions, archiveText, rowsOf } from './archive.ts'
import { type Command, defineCommand } from './command.ts'

export const exportCommand: Command = defineCommand({
  description:
    'One moment of the store, as text files with checksums, for `rillflow import` on any engine: the way from an embedded store to a server and back. `events export` writes only events.',
  options: archiveOptions,
  examples: ['rillflow export --output ./shop-2026', 'rillflow export --output ./shop-2026 --include-snapshots'],
  async run({ out, open, options: { output, includeSnapshots }, signal }) {
    const { store, where } = await open()
    const bar = out.progress('Exporting')
    const manifest = await store
      .export({ output, includeSnapshots, signal, onProgress: rowsOf(bar) })
      .finally(() => bar.end())
    out.print({ output, ...manifest }, style =>
      archiveText(style, `schema ${manifest.schema} of ${where}`, output, manifest),
    )
  },
})
