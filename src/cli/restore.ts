/** `rillflow restore` */
import { type Command, defineCommand } from './command.ts'
import { count } from './output/amount.ts'
import { WrongUsage } from './usage.ts'

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
    const { restoreBackup } = await import('../transfer/backup/restore.ts')
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
