/** `rillflow tenants drop` */
import { type Command, defineCommand } from '../command.ts'
import { bytes } from '../output/amount.ts'
import { openTenants } from './open.ts'

export const dropCommand: Command = defineCommand({
  description:
    'Events, documents, read models and workflows of it are gone for good. `tenants archive` keeps them elsewhere first.',
  arguments: [{ name: 'tenant', summary: 'Its name', names: 'tenant' }],
  examples: ['rillflow tenants drop acme --dry-run', 'rillflow tenants drop acme --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { tenant } }) {
    const { tenants, where } = await openTenants({ open }, { migrate: 'manual' })
    const { schema, head, bytes: size } = await tenants.status(tenant)
    const held = `a log up to position ${head} and ${bytes(size)}`
    if (!(await confirm(`drop tenant ${tenant} of ${where}, which holds ${held}, and everything in it`))) return
    await tenants.drop(tenant, { force: true })
    out.print({ tenant, schema, dropped: true }, () => `Dropped tenant ${tenant}.`)
  },
})
