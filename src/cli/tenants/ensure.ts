/** `rillflow tenants ensure` */
import { type Command, defineCommand } from '../command.ts'
import { openTenants, serverOption } from './open.ts'

export const ensureCommand: Command = defineCommand({
  description:
    'May be called again, and by many at once. A directory that is not there is made, with the servers of the configuration.',
  arguments: [{ name: 'tenant', summary: 'Its name: lower-case letters, digits, _ and -' }],
  options: { server: serverOption },
  examples: ['rillflow tenants ensure acme', 'rillflow tenants ensure acme --server eu-1'],
  async run({ out, open, arguments: { tenant }, options: { server }, signal }) {
    const { tenants } = await openTenants({ open }, { migrate: true, creates: true })
    const placement = await tenants.ensure(tenant, { server, signal })
    out.print(placement, style => {
      const place = `schema ${placement.schema} of server ${placement.server}`
      return `Tenant ${style.colour.cyan(tenant)} is there, up to date: ${place}.`
    })
  },
})
