/** `rillflow tenants list` */
import { type Command, defineCommand } from '../command.ts'
import { paintState } from '../output/consumer.ts'
import { table } from '../output/table.ts'
import { openTenants } from './open.ts'

export const listCommand: Command = defineCommand({
  examples: ['rillflow tenants list', 'rillflow tenants list --json | jq -r .[].tenant'],
  async run({ out, open }) {
    const { tenants } = await openTenants({ open })
    const placements = await tenants.list()
    out.print(placements, style =>
      table(
        style,
        placements,
        [
          { title: 'TENANT', of: each => each.tenant, paint: (_, colour) => colour.cyan },
          { title: 'SERVER', of: each => each.server },
          { title: 'SCHEMA', of: each => each.schema, paint: (_, colour) => colour.dim },
          {
            title: 'STATE',
            of: each => each.state,
            paint: (each, colour) => paintState(each.state === 'moving' ? 'waiting' : 'running', colour),
          },
        ],
        'No tenants.',
      ),
    )
  },
})
