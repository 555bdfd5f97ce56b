/**
 * Commands that carry a whole store out and in.
 *
 *     export ──► folder of text files ──► import      any engine to any engine
 *     backup ──► folder of data files ──► restore     embedded stores only; optionally up to a position
 *
 * Guarantees:
 * - An export is one moment of the store. An import or a restore happens completely or not at all, and checks every checksum
 *   first.
 *
 * What can fail: the folder to write exists already, the store to import into is not empty, a checksum does not match.
 */
import type { ExportManifest, ExportProgress } from '../../transfer/export/manifest.ts'
import { type Command, defineCommand } from '../command.ts'
import { bytes, count, duration } from '../output/amount.ts'
import type { Style } from '../output/output.ts'
import type { Progress } from '../output/progress.ts'
import { WrongUsage } from '../report-error.ts'

/** Also the options of `tenants export`. */
export const exportOptions = {
  output: { kind: 'text', value: 'DIR', required: true, summary: 'The folder to create; it must not exist' },
  includeSnapshots: {
    kind: 'flag',
    summary: 'Also export snapshots; without them aggregates are rebuilt from their events',
  },
} as const

export const exportStore: Command = defineCommand({
  description:
    'Writes the store as it is at one moment, as text files with checksums, for `rillflow import` on any engine. This is the way from an embedded store to a server and back. With --tenant it exports one tenant. `events export` writes only events.',
  options: exportOptions,
  examples: ['rillflow export --output ./shop-2026', 'rillflow export --output ./shop-2026 --include-snapshots'],
  async run({ out, open, options: { output, includeSnapshots }, signal }) {
    const { store, where } = await open()
    const bar = out.progress('Exporting')
    const manifest = await store
      .export({ output, includeSnapshots, signal, onProgress: showRows(bar) })
      .finally(() => bar.end())
    const source = `schema ${manifest.schema} of ${where}`
    out.print({ output, ...manifest }, style => exportText(style, source, output, manifest))
  },
})

export const importStore: Command = defineCommand({
  description:
    'The store must be empty or not exist. Every checksum is checked first; then everything is imported, or nothing. The tables in it are checked: no SQL runs that an export does not write. Its rows are trusted, so import only data that you would let its author write into the store. `events import` loads events from any source.',
  arguments: [{ name: 'input', summary: 'The folder that `rillflow export` wrote' }],
  examples: ['rillflow import ./shop-2026 --url postgres://localhost/shop'],
  async run({ out, open, arguments: { input }, signal }) {
    const { store, where } = await open({ migrate: 'manual', create: true })
    const bar = out.progress('Importing')
    const manifest = await store.import({ input, signal, onProgress: showRows(bar) }).finally(() => bar.end())
    const target = `schema ${store.schema.name} of ${where}`
    out.print({ input, ...manifest }, style => importText(style, target, manifest))
  },
})

/** Updates a bar with the rows of an export, an import or a move. */
export function showRows(bar: Progress): (progress: Pick<ExportProgress, 'rows' | 'totalRows'>) => void {
  return ({ rows, totalRows }) => bar.update(rows, totalRows, 'row')
}

export function exportText({ colour }: Style, source: string, output: string, manifest: ExportManifest): string {
  return `${colour.green('Exported')} ${source} to ${output}: ${contentOf(manifest)}.`
}

export function importText({ colour }: Style, target: string, manifest: ExportManifest): string {
  return `${colour.green('Imported')} ${target}: ${contentOf(manifest)}.`
}

function contentOf({ tables, position }: ExportManifest): string {
  const rows = tables.reduce((sum, { file }) => sum + (file?.rows ?? 0), 0)
  return `${count(rows, 'row')} of ${count(tables.length, 'table')}, the log up to position ${position}`
}

export const backup: Command = defineCommand({
  description:
    'For embedded stores. Back up a store on a server with the tools of the server, such as pg_dump. A program that has the embedded store open must back it up itself: store.backup({ output }).',
  options: { output: exportOptions.output },
  examples: ['rillflow backup --output ./backup-2026'],
  async run({ out, open, options: { output }, signal }) {
    const { store } = await open()
    const bar = out.progress('Backing up')
    const result = await store
      .backup({ output, signal, onProgress: ({ files, totalFiles }) => bar.update(files, totalFiles, 'file') })
      .finally(() => bar.end())
    out.print(result, style => {
      const { position, files, pausedMs } = result
      const size = `${count(files, 'file')}, ${bytes(result.bytes)}, in ${duration(pausedMs)}`
      return `${style.colour.green('Backed up')} to ${result.output}: the log up to position ${position}, ${size}.`
    })
  },
})

export const restore: Command = defineCommand({
  description:
    'Restores into --folder, or ./.rillflow, which must be empty or not exist. Every checksum is checked first, and the folder appears only when it is complete. With --to-position later events are deleted, together with everything that was made from them; new events get positions above all that the log ever had.',
  arguments: [{ name: 'input', summary: 'The folder that `rillflow backup` wrote; it is only read' }],
  options: {
    toPosition: {
      kind: 'position',
      value: 'POSITION',
      summary: 'Restore the log up to this position. Default: all of it',
    },
  },
  examples: ['rillflow restore ./backup-2026 --folder ./restored', 'rillflow restore ./backup-2026 --to-position 4711'],
  async run({ out, location, config, arguments: { input }, options: { toPosition }, signal }) {
    if (location.url !== undefined)
      throw new WrongUsage({
        reason: 'A backup is restored into a folder, but --url or DATABASE_URL names a server',
        hint: `rillflow restore ${input} --folder PATH`,
      })
    const folder = location.folder ?? (await config())?.config.folder ?? './.rillflow'
    const { restoreBackup } = await import('../../transfer/backup/restore.ts')
    const bar = out.progress('Restoring')
    const result = await restoreBackup({
      ...{ input, folder, toPosition, signal },
      onProgress: ({ files, totalFiles }) => bar.update(files, totalFiles, 'file'),
    }).finally(() => bar.end())
    out.print(result, style => {
      const { cut, position } = result
      const removed = cut === undefined ? '' : `, and ${count(cut.events, 'later event')} deleted`
      const commands = (cut?.projections ?? []).map(name => `\n  rillflow projections rebuild ${name}`).join('')
      const rebuild = commands === '' ? '' : `\nThese read models contain later events. Rebuild them:${commands}`
      return `${style.colour.green('Restored')} ${result.folder}: the log up to position ${position}${removed}.${rebuild}`
    })
  },
})
