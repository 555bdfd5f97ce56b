/** `rillflow daemons list` */
import { type Command, defineCommand } from '../command.ts'
import { ago, duration } from '../output/amount.ts'
import { table } from '../output/table.ts'

export const listCommand: Command = defineCommand({
  examples: ['rillflow daemons list'],
  async run({ out, open }) {
    const { store } = await open()
    const daemons = await store.daemons.list()
    out.print(daemons, style =>
      table(
        style,
        daemons,
        [
          { title: 'NODE', of: each => each.node, paint: (_, colour) => colour.cyan },
          { title: 'OWNER', of: each => each.owner, cut: true },
          { title: 'ROLE', of: each => each.role },
          {
            title: 'ALIVE',
            of: each => (each.isAlive ? 'yes' : 'no'),
            paint: (each, colour) => (each.isAlive ? colour.green : colour.red),
          },
          { title: 'HEARTBEAT', of: each => `${duration(each.heartbeatAgeMs)} ago`, paint: (_, colour) => colour.dim },
          { title: 'STARTED', of: each => ago(each.startedAt, style.now), paint: (_, colour) => colour.dim },
          { title: 'HOLDS', of: each => each.leases.join(', '), cut: true },
        ],
        'No daemons.',
      ),
    )
  },
})
