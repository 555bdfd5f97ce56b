/**
 * `rillflow schedules`: events that are published at certain times.
 *
 *     look       list · next · history
 *     control    pause · resume · trigger · delete
 *
 * What can fail: a schedule that is not known; the error names it.
 */
import { kebabCase } from '../arguments.ts'
import { type Argument, type Commands, defineCommand, defineVerbs } from '../command.ts'
import { listCommand, pageOptions } from '../list-command.ts'
import { ago, duration } from '../output/amount.ts'
import { toJson } from '../output/output.ts'
import { paintState } from '../output/state.ts'

const schedule = { name: 'schedule', summary: 'The name of the schedule' } as const satisfies Argument

const list = listCommand({
  options: pageOptions,
  examples: ['rillflow schedules list'],
  empty: 'There are no schedules. `rillflow run` stores those of the configuration when it starts.',
  list: (store, page) => store.workflows.schedules.list(page),
  columns: ({ now }) => [
    { title: 'SCHEDULE', of: ({ name }) => name, paint: (_, colour) => colour.cyan },
    {
      title: 'STATE',
      of: ({ state }) => state,
      paint: ({ state }, colour) => paintState(state === 'active' ? 'running' : state, colour),
    },
    { title: 'NEXT', of: ({ nextAt }) => ago(nextAt, now) },
    { title: 'LAST', of: ({ lastAt }) => ago(lastAt, now), paint: (_, colour) => colour.dim },
    { title: 'OUTCOME', of: ({ lastOutcome }) => lastOutcome && kebabCase(lastOutcome) },
    { title: 'CODE', of: ({ isHere }) => (isHere ? 'here' : 'elsewhere'), paint: (_, colour) => colour.dim },
    { title: 'WHEN', of: ({ definition }) => toJson(definition), cut: true },
  ],
})

const next = defineCommand({
  arguments: [schedule],
  options: { count: { kind: 'whole', default: 5, value: 'COUNT', summary: 'The number of due times' } },
  examples: ['rillflow schedules next nightly-report'],
  async run({ out, open, arguments: { schedule: name }, options: { count } }) {
    const { store } = await open()
    const items = await store.workflows.schedules.next(name, count)
    out.print({ items }, ({ now }) =>
      items.length === 0
        ? `${name} has no due time left.`
        : items.map(at => `${at.toISOString()} (${ago(at, now)})`).join('\n'),
    )
  },
})

const history = listCommand({
  arguments: [schedule],
  options: pageOptions,
  examples: ['rillflow schedules history nightly-report'],
  empty: 'It has not run yet.',
  list: (store, { schedule: name, ...page }) => store.workflows.schedules.history(name, page),
  columns: ({ now }) => [
    { title: 'DUE', of: ({ dueAt }) => dueAt.toISOString() },
    {
      title: 'OUTCOME',
      of: ({ outcome }) => kebabCase(outcome),
      paint: (each, colour) => paintState(each.outcome, colour),
    },
    { title: 'TOOK', of: ({ startedAt, endedAt }) => duration(endedAt.getTime() - startedAt.getTime()), right: true },
    { title: 'ENDED', of: ({ endedAt }) => ago(endedAt, now), paint: (_, colour) => colour.dim },
    { title: 'WORKFLOW', of: ({ correlationId }) => correlationId, cut: true },
    { title: 'ERROR', of: ({ error }) => error?.message, below: true },
  ],
})

const pause = defineCommand({
  description: 'A run that has begun still ends; none begins, except by trigger.',
  arguments: [schedule],
  examples: ['rillflow schedules pause nightly-report'],
  async run({ out, open, arguments: { schedule: name } }) {
    const { store } = await open()
    await store.workflows.schedules.pause(name)
    out.print(
      { schedule: name, state: 'paused' },
      () => `Paused ${name}. To undo this: rillflow schedules resume ${name}`,
    )
  },
})

const resume = defineCommand({
  description: 'Continues with the next due time. Times that came due meanwhile are skipped.',
  arguments: [schedule],
  examples: ['rillflow schedules resume nightly-report'],
  async run({ out, open, arguments: { schedule: name } }) {
    const { store } = await open()
    await store.workflows.schedules.resume(name)
    out.print({ schedule: name, state: 'active' }, () => `Resumed ${name}.`)
  },
})

const trigger = defineCommand({
  description: 'The next runner that has its code runs it, also while it is paused.',
  arguments: [schedule],
  examples: ['rillflow schedules trigger nightly-report'],
  async run({ out, open, arguments: { schedule: name } }) {
    const { store } = await open()
    const run = await store.workflows.schedules.trigger(name)
    out.print(run, () => `Asked for a run of ${name}, workflow ${run.correlationId}.`)
  },
})

const remove = defineCommand({
  description: 'Where its code still is, it begins anew with the next start.',
  arguments: [schedule],
  examples: ['rillflow schedules delete nightly-report --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { schedule: name } }) {
    const { store } = await open()
    if (!(await confirm(`delete schedule ${name} and its history`))) return
    await store.workflows.schedules.delete(name)
    out.print({ schedule: name }, () => `Deleted ${name} and its history.`)
  },
})

export const schedules: Commands = defineVerbs({
  list: ['Show schedules, with their next time and their last outcome', list],
  next: ['Show the next due times of a schedule', next],
  history: ['Show the runs of a schedule that have ended', history],
  pause: ['Begin no more runs of a schedule', pause],
  resume: ['Continue with a schedule', resume],
  trigger: ['Ask for one more run now', trigger],
  delete: ['Delete a schedule and its history', remove],
})
