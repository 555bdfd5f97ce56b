/** `rillflow tenants archive` */
import { archiveOptions, archiveText, rowsOf } from '../archive.ts'
import { type Command, defineCommand } from '../command.ts'
import { openTenants } from './open.ts'

export const archiveCommand: Command = defineCommand({
  description:
    'One moment of the tenant, as text files with checksums, for `tenants import` on any engine. On a server others go on reading and writing meanwhile.',
  arguments: [{ name: 'tenant', summary: 'Its name', names: 'tenant' }],
  options: archiveOptions,
  examples: ['rillflow tenants archive acme --output ./acme-2026'],
  async run({ out, open, arguments: { tenant }, options: { output, includeSnapshots }, signal }) {
    const { tenants } = await openTenants({ open })
    const bar = out.progress(`Archiving ${tenant}`)
    const manifest = await tenants
      .export(tenant, { output, includeSnapshots, signal, onProgress: rowsOf(bar) })
      .finally(() => bar.end())
    out.print({ tenant, output, ...manifest }, style => archiveText(style, `tenant ${tenant}`, output, manifest))
  },
})
