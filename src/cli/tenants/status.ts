/** `rillflow tenants status` */
import { throwIfAborted } from '../../core/lifecycle.ts'
import type { TenantStatus } from '../../tenants/status.ts'
import { type Command, defineCommand } from '../command.ts'
import { bytes, digits } from '../output/amount.ts'
import { table } from '../output/table.ts'
import { openTenants } from './open.ts'

export const statusCommand: Command = defineCommand({
  description:
    'EVENTS is what the server estimates. LAG is that of the consumer furthest behind. What is pending a sync would make; drift is told in full with --json and by `health schema --tenant NAME`.',
  arguments: [{ name: 'tenant', summary: 'Only this one', names: 'tenant', optional: true }],
  examples: ['rillflow tenants status', 'rillflow tenants status acme --json'],
  async run({ out, open, arguments: { tenant }, signal }) {
    const { tenants } = await openTenants({ open }, { migrate: 'manual' })
    const names = tenant === undefined ? (await tenants.list()).map(each => each.tenant) : [tenant]
    const bar = out.progress('Looking')
    const rows: TenantStatus[] = []
    try {
      for (const name of names) {
        throwIfAborted(signal)
        rows.push(await tenants.status(name))
        bar.update(rows.length, names.length, 'tenant')
      }
    } finally {
      bar.end()
    }
    out.print(tenant === undefined ? rows : rows[0], style =>
      table(
        style,
        rows,
        [
          { title: 'TENANT', of: each => each.tenant, paint: (_, colour) => colour.cyan },
          { title: 'SERVER', of: each => each.server },
          { title: 'VERSION', of: each => each.version, right: true },
          { title: 'PENDING', of: each => each.pending.length, right: true },
          {
            title: 'DRIFT',
            of: each => each.drift.length,
            right: true,
            paint: (each, colour) => (each.drift.length > 0 ? colour.red : colour.dim),
          },
          { title: 'SIZE', of: each => bytes(each.bytes), right: true },
          { title: 'EVENTS', of: each => digits(each.events), right: true },
          { title: 'HEAD', of: each => digits(each.head), right: true },
          { title: 'LAG', of: each => digits(each.lag), right: true },
        ],
        'No tenants.',
      ),
    )
  },
})
