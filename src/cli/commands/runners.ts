/**
 * `rillflow runners`: the runners of all processes, and which of them works when some are on standby.
 *
 *     list      each runner, whether it is alive, and what it holds
 *     promote   make a standby the runner that works
 *     demote    make the runner that works a standby
 *
 * Promoting and demoting need the name that a runner was started with: `rillflow run --node west-1 --standby`.
 *
 * What can fail: no living runner has the name; the error suggests the nearest one.
 */
import { type Argument, type Commands, defineCommand, defineVerbs } from '../command.ts'
import { listCommand } from '../list-command.ts'
import { ago, duration } from '../output/amount.ts'

const list = listCommand({
  examples: ['rillflow runners list', 'rillflow runners list --json'],
  empty: 'No runner is running.',
  list: store => store.daemons.list(),
  columns: ({ now }) => [
    { title: 'NAME', of: runner => runner.node, paint: (_, colour) => colour.cyan },
    { title: 'ID', of: runner => runner.owner, cut: true },
    { title: 'ROLE', of: runner => runner.role },
    {
      title: 'ALIVE',
      of: runner => (runner.isAlive ? 'yes' : 'no'),
      paint: (runner, colour) => (runner.isAlive ? colour.green : colour.red),
    },
    { title: 'HEARTBEAT', of: runner => `${duration(runner.heartbeatAgeMs)} ago`, paint: (_, colour) => colour.dim },
    { title: 'STARTED', of: runner => ago(runner.startedAt, now), paint: (_, colour) => colour.dim },
    { title: 'HOLDS', of: runner => runner.leases.join(', '), cut: true },
  ],
})

const name = { name: 'name', summary: 'The name that the runner was started with' } as const satisfies Argument

const promote = defineCommand({
  description: 'The runner that was active until now becomes a standby.',
  arguments: [name],
  examples: ['rillflow runners promote west-1'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.daemons.promote(name)
    out.print(await store.daemons.list(), () => `Runner "${name}" is active.`)
  },
})

const demote = defineCommand({
  description: 'The standby that has waited longest becomes active.',
  arguments: [name],
  examples: ['rillflow runners demote west-1'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.daemons.demote(name)
    out.print(await store.daemons.list(), () => `Runner "${name}" is a standby.`)
  },
})

export const runners: Commands = defineVerbs({
  list: ['Show every runner and what it holds', list],
  promote: ['Make a standby the active runner', promote],
  demote: ['Make the active runner a standby', demote],
})
