/** Commands about daemons. */
import { type Commands, defineCommand, defineVerbs } from '../command.ts'
import { ago, duration } from '../output/amount.ts'
import { table } from '../output/table.ts'

const list = defineCommand({
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

const promote = defineCommand({
  description: 'The node that is at work becomes a standby.',
  arguments: [{ name: 'node', summary: 'Its node name, as it was started with' }],
  examples: ['rillflow daemons promote west-1'],
  async run({ out, open, arguments: { node } }) {
    const { store } = await open()
    await store.daemons.promote(node)
    out.print(await store.daemons.list(), () => `Promoted ${node}.`)
  },
})

const demote = defineCommand({
  description: 'The other node that has waited longest goes to work.',
  arguments: [{ name: 'node', summary: 'Its node name, as it was started with' }],
  examples: ['rillflow daemons demote west-1'],
  async run({ out, open, arguments: { node } }) {
    const { store } = await open()
    await store.daemons.demote(node)
    out.print(await store.daemons.list(), () => `Demoted ${node}.`)
  },
})

export const daemons: Commands = defineVerbs({
  list: ['Who is there, and what they hold', list],
  promote: ['Make a node the one that works', promote],
  demote: ['Make a node wait', demote],
})
