/**
 * `rillflow runners`: the runners of all processes, and which of them is active when some are on standby.
 *
 *     list      each runner, whether it is alive, and the consumers that it holds
 *     promote   make a runner on standby the active one
 *     demote    put the active runner on standby
 *     pause     drain a runner: running work completes
 *     resume    let it run again
 *
 * Promoting and demoting need the name that a runner was started with: `rillflow run --name west-1 --standby`.
 *
 * What can fail: no living runner has the name; the error suggests the nearest one.
 */
import { everyItem } from '../../core/page.ts'
import { type Argument, type Commands, defineCommand, defineVerbs } from '../command.ts'
import { listCommand, pageOptions } from '../list-command.ts'
import { ago, duration } from '../output/amount.ts'

const list = listCommand({
  description:
    'RUNNING is the number of handlers that run now, and the maximum. HOLDS lists the consumers that the runner runs now.',
  options: pageOptions,
  examples: ['rillflow runners list', 'rillflow runners list --json'],
  empty: 'No runner is running.',
  async list(store, page) {
    const { items, next } = await store.runners.list(page)
    const workers = new Map((await everyItem(store.workflows.workers)).map(worker => [worker.id, worker]))
    const itemOf = (runner: (typeof items)[number]) => {
      const { running, held, handlers } = workers.get(runner.id) ?? { running: 0, held: 0, handlers: [] }
      return { ...runner, running, held, handlers }
    }
    return { items: items.map(itemOf), next }
  },
  columns: ({ now }) => [
    { title: 'NAME', of: runner => runner.name, paint: (_, colour) => colour.cyan },
    { title: 'ID', of: runner => runner.id, cut: true },
    { title: 'ROLE', of: runner => runner.role },
    {
      title: 'ALIVE',
      of: runner => (runner.isAlive ? 'yes' : 'no'),
      paint: (runner, colour) => (runner.isAlive ? colour.green : colour.red),
    },
    { title: 'HEARTBEAT', of: runner => `${duration(runner.heartbeatAgeMs)} ago`, paint: (_, colour) => colour.dim },
    { title: 'STARTED', of: runner => ago(runner.startedAt, now), paint: (_, colour) => colour.dim },
    {
      title: 'RUNNING',
      of: ({ running, concurrency }) => (concurrency === undefined ? undefined : `${running} of ${concurrency}`),
      right: true,
    },
    { title: 'HOLDS', of: runner => runner.holds.join(', '), cut: true },
  ],
})

const name = { name: 'name', summary: 'The name that the runner was started with' } as const satisfies Argument

const nameOrId = { name: 'name', summary: 'The name or the id of the runner' } as const satisfies Argument

const promote = defineCommand({
  description: 'The runner that was active until now goes on standby. A runner that is paused becomes active.',
  arguments: [name],
  examples: ['rillflow runners promote west-1'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.runners.promote(name)
    out.print(await store.runners.list(), () => `Runner "${name}" is active.`)
  },
})

const demote = defineCommand({
  description: 'The runner that has been on standby for longest becomes active.',
  arguments: [name],
  examples: ['rillflow runners demote west-1'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.runners.demote(name)
    out.print(await store.runners.list(), () => `Runner "${name}" is on standby.`)
  },
})

const pause = defineCommand({
  description:
    'Running work completes, and the runner runs nothing until it is resumed. Others take over its consumers.',
  arguments: [nameOrId],
  examples: ['rillflow runners pause west-1'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.runners.pause(name)
    out.print(await store.runners.list(), () => `Runner "${name}" is paused.`)
  },
})

const resume = defineCommand({
  description: 'The runner takes its share of the work again.',
  arguments: [nameOrId],
  examples: ['rillflow runners resume west-1'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.runners.resume(name)
    out.print(await store.runners.list(), () => `Runner "${name}" runs again.`)
  },
})

export const runners: Commands = defineVerbs({
  list: ['Show the runners and the consumers that they hold', list],
  promote: ['Make a runner the active one', promote],
  demote: ['Put the active runner on standby', demote],
  pause: ['Drain a runner: it runs nothing until it is resumed', pause],
  resume: ['Let a paused runner run again', resume],
})
