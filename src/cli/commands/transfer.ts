/** What archives of a store and of a tenant have in common on the line: options, progress and what is told. */
import type { ArchiveProgress, Manifest } from '../../tenants/archive/archive.ts'
import { type Command, defineCommand } from '../command.ts'
import { bytes, count, duration } from '../output/amount.ts'
import type { Style } from '../output/output.ts'
import type { Progress } from '../output/progress.ts'
import { WrongUsage } from '../report-error.ts'

export const archiveOptions = {
  output: { kind: 'text', value: 'DIR', required: true, summary: 'The folder to make; nothing may be there' },
  includeSnapshots: {
    kind: 'flag',
    summary: 'Snapshots, too; without them aggregates are folded from their events again',
  },
} as const

export function rowsOf(bar: Progress): (progress: ArchiveProgress) => void {
  return ({ rows, totalRows }) => bar.update(rows, totalRows, 'row')
}

export function archiveText({ colour }: Style, what: string, output: string, manifest: Manifest): string {
  return `${colour.green('Archived')} ${what} to ${output}: ${contentsOf(manifest)}.`
}

export function importedText({ colour }: Style, what: string, manifest: Manifest): string {
  return `${colour.green('Imported')} ${what}: ${contentsOf(manifest)}.`
}

function contentsOf({ tables, position }: Manifest): string {
  const rows = tables.reduce((sum, { file }) => sum + (file?.rows ?? 0), 0)
  return `${count(rows, 'row')} of ${count(tables.length, 'table')}, the log up to position ${position}`
}

// `rillflow export`: the whole store, or with `--tenant` one tenant, as an archive.

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

// `rillflow import`: brings an archive into an empty store.

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

export const backupCommand: Command = defineCommand({
  description:
    'A store on a server is backed up by the tools of the server (pg_dump, or whoever runs it). A program that has the embedded store open backs it up itself: store.backup({ output }).',
  options: {
    output: { kind: 'text', value: 'DIR', required: true, summary: 'The folder to make; nothing may be there' },
  },
  examples: ['rillflow backup --output ./backup-2026'],
  async run({ out, open, options: { output }, signal }) {
    const { store } = await open()
    const bar = out.progress('Backing up')
    const made = await store
      .backup({ output, signal, onProgress: ({ files, totalFiles }) => bar.update(files, totalFiles, 'file') })
      .finally(() => bar.end())
    out.print(made, style => {
      const told = `${count(made.files, 'file')}, ${bytes(made.bytes)}, in ${duration(made.heldMs)}`
      return `${style.colour.green('Backed up')} to ${made.output}: the log up to position ${made.position}, ${told}.`
    })
  },
})

export const restoreCommand: Command = defineCommand({
  description:
    'Into the folder of --folder, or ./.rillflow: it must be empty, or not be there. Every checksum is looked at first, and the folder appears whole or not at all. Cut at a position, the log goes on above the highest one it ever had; what was made of later events is undone with them, or made again.',
  arguments: [{ name: 'input', summary: 'The folder that `rillflow backup` has made; it is only read' }],
  options: { toPosition: { kind: 'position', value: 'POSITION', summary: 'End the log there. Default: all of it' } },
  examples: ['rillflow restore ./backup-2026 --folder ./restored', 'rillflow restore ./backup-2026 --to-position 4711'],
  async run({ out, place, config, arguments: { input }, options: { toPosition }, signal }) {
    if (place.url !== undefined)
      throw new WrongUsage({
        reason: 'A backup is the folder of an embedded store, and --url or DATABASE_URL names a server',
        hint: `rillflow restore ${input} --folder PATH`,
      })
    const folder = place.folder ?? (await config())?.config.folder ?? './.rillflow'
    const { restoreBackup } = await import('../../upkeep/restore.ts')
    const bar = out.progress('Restoring')
    const restored = await restoreBackup({
      ...{ input, folder, toPosition, signal },
      onProgress: ({ files, totalFiles }) => bar.update(files, totalFiles, 'file'),
    }).finally(() => bar.end())
    out.print(restored, style => {
      const { cut, position } = restored
      const told = cut === undefined ? '' : `, ${count(cut.events, 'event')} after it cut away`
      const owed = (cut?.projections ?? []).map(name => `\n  rillflow projections rebuild ${name}`)
      const rebuild = owed.length === 0 ? '' : `\nIts read models know more than the log now:${owed.join('')}`
      return `${style.colour.green('Restored')} ${restored.folder}: the log up to position ${position}${told}.${rebuild}`
    })
  },
})
