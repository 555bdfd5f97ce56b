/** `rillflow tenants sync` */
import { type Command, defineCommand } from '../command.ts'
import { count } from '../output/amount.ts'
import { table } from '../output/table.ts'
import { openTenants } from './open.ts'

export const syncCommand: Command = defineCommand({
  description:
    'One that fails does not stop the others, makes the exit code 1, and is gone on with by the next call. `schema plan --tenant NAME` shows what would be done to one.',
  arguments: [{ name: 'tenant', summary: 'Only this one', names: 'tenant', optional: true }],
  options: { concurrency: { kind: 'whole', value: 'COUNT', default: 4, summary: 'How many at once' } },
  examples: ['rillflow tenants sync', 'rillflow tenants sync --concurrency 16 --json'],
  async run({ out, open, arguments: { tenant }, options: { concurrency }, signal }) {
    const { tenants } = await openTenants({ open }, { migrate: 'manual' })
    const bar = out.progress('Syncing')
    const synced = await tenants
      .sync({
        ...{ concurrency, signal, tenants: tenant === undefined ? undefined : [tenant] },
        onProgress: ({ done, total }) => bar.update(done, total, 'tenant'),
      })
      .finally(() => bar.end())
    const rows = synced.map(({ tenant: name, steps, error }) => ({
      ...{ tenant: name, steps },
      ...(error === undefined ? {} : { error: error instanceof Error ? error.message : String(error) }),
    }))
    out.print(rows, style =>
      table(
        style,
        rows,
        [
          { title: 'TENANT', of: each => each.tenant, paint: (_, colour) => colour.cyan },
          {
            title: 'RESULT',
            of: each => (each.steps.length === 0 ? 'up to date' : count(each.steps.length, 'step')),
          },
          ...(rows.some(each => each.error !== undefined)
            ? [{ title: 'ERROR', of: (each: (typeof rows)[number]) => each.error, cut: true }]
            : []),
        ],
        'No tenants.',
      ),
    )
    return rows.some(each => each.error !== undefined) ? 1 : 0
  },
})
