/** What archives of a store and of a tenant have in common on the line: options, progress and what is told. */
import type { ExportManifest, ExportProgress } from '../transfer/export/manifest.ts'
import { count } from './output/amount.ts'
import type { Style } from './output/output.ts'
import type { Progress } from './output/progress.ts'

export const archiveOptions = {
  output: { kind: 'text', value: 'DIR', required: true, summary: 'The folder to make; nothing may be there' },
  includeSnapshots: {
    kind: 'flag',
    summary: 'Snapshots, too; without them aggregates are folded from their events again',
  },
} as const

export function rowsOf(bar: Progress): (progress: ExportProgress) => void {
  return ({ rows, totalRows }) => bar.update(rows, totalRows, 'row')
}

export function archiveText({ colour }: Style, what: string, output: string, manifest: ExportManifest): string {
  return `${colour.green('Archived')} ${what} to ${output}: ${contentsOf(manifest)}.`
}

export function importedText({ colour }: Style, what: string, manifest: ExportManifest): string {
  return `${colour.green('Imported')} ${what}: ${contentsOf(manifest)}.`
}

function contentsOf({ tables, position }: ExportManifest): string {
  const rows = tables.reduce((sum, { file }) => sum + (file?.rows ?? 0), 0)
  return `${count(rows, 'row')} of ${count(tables.length, 'table')}, the log up to position ${position}`
}
