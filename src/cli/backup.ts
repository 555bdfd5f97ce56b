/** `rillflow backup` */
import { type Command, defineCommand } from './command.ts'
import { bytes, count, duration } from './output/amount.ts'

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
      const told = `${count(made.files, 'file')}, ${bytes(made.bytes)}, in ${duration(made.pausedMs)}`
      return `${style.colour.green('Backed up')} to ${made.output}: the log up to position ${made.position}, ${told}.`
    })
  },
})
