/** `rillflow schema down` */
import { type Command, defineCommand } from '../command.ts'
import { count } from '../output/amount.ts'
import { WrongUsage } from '../usage.ts'

export const downCommand: Command = defineCommand({
  description:
    'Events, documents, read models and whatever else is in the schema are gone for good. There is no way back but a backup.',
  examples: ['rillflow schema down --dry-run', 'rillflow schema down --schema staging --yes'],
  destructive: true,
  async run({ out, open, confirm }) {
    const { store, where, tenancy } = await open({ migrate: 'manual' })
    if (tenancy !== undefined)
      throw new WrongUsage({
        reason: 'The schemas of tenants are dropped with them',
        hint: 'rillflow tenants drop NAME',
      })
    const { name } = store.schema
    const { status } = await store.schema.state()
    const held = status === 'missing' ? 'no store' : `a log up to position ${await store.events.head()}`
    if (!(await confirm(`drop schema ${name} of ${where}, which holds ${held}, and everything in it`))) return
    const { tables } = await store.schema.drop()
    out.print({ schema: name, dropped: true, tables }, () => `Dropped schema ${name} with ${count(tables, 'table')}.`)
  },
})
