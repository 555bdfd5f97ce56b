/**
 * `rillflow handlers` and `rillflow lanes`: the code that runs because of events, and the order in which it runs.
 *
 *     look       handlers list · handlers show · lanes list
 *     control    handlers pause · resume · retire · lanes unpark
 *
 * None of them needs the code of a handler: what a runner has stored of it is enough.
 *
 * What can fail: a handler that is not known (`NothingFound`).
 */
import type { HandlerDescription } from '../../workflows/insight/handlers.ts'
import { kebabCase } from '../arguments.ts'
import { type Argument, type Commands, defineCommand, defineVerbs } from '../command.ts'
import { listCommand, pageOptions } from '../list-command.ts'
import { count, duration } from '../output/amount.ts'
import { paintState } from '../output/state.ts'
import { fields } from '../output/table.ts'
import { NothingFound } from '../report-error.ts'

const handler = {
  name: 'handler',
  summary: 'The name of the handler',
  completes: 'handler',
} as const satisfies Argument

const list = listCommand({
  description:
    'RUNNERS is the number of runners that have the code of the handler. If it is 0, its executions wait until a runner with the code is started.',
  options: pageOptions,
  examples: ['rillflow handlers list', 'rillflow handlers list --json'],
  empty: 'There are no handlers. `rillflow run` stores those of the configuration when it starts.',
  list: (store, page) => store.workflows.handlers.list(page),
  columns: () => [
    {
      title: 'HANDLER',
      of: ({ handler, version }) => (version === 1 ? handler : `${handler} v${version}`),
      paint: (_, colour) => colour.cyan,
    },
    { title: 'KIND', of: ({ kind }) => kebabCase(kind) },
    {
      title: 'STATE',
      of: handlerState,
      paint: (each, colour) => paintState(handlerState(each), colour),
    },
    { title: 'RUNNERS', of: ({ workers }) => workers, right: true },
    { title: 'READY', of: ({ open }) => open.ready, right: true },
    { title: 'RUNNING', of: ({ open }) => open.running, right: true },
    {
      title: 'WAITING',
      of: ({ open: { ready, running, parked, ...waiting } }) => Object.values(waiting).reduce((a, b) => a + b, 0),
      right: true,
    },
    { title: 'PARKED', of: ({ open }) => open.parked, right: true },
    { title: 'EVENTS', of: ({ types }) => types?.join(', ') ?? 'all', cut: true },
  ],
})

function handlerState({ pausedAt, retiredAt, isBackfilling }: HandlerDescription): string {
  if (retiredAt !== undefined) return 'retired'
  if (pausedAt !== undefined) return 'paused'
  return isBackfilling ? 'catching up' : 'active'
}

const show = defineCommand({
  description: 'Shows every version of a handler with its policy: retries, limits, order.',
  arguments: [handler],
  examples: ['rillflow handlers show charge'],
  async run({ out, open, arguments: { handler: name } }) {
    const { store } = await open()
    const versions: HandlerDescription[] = []
    for (let after: string | undefined, page = await store.workflows.handlers.list({ limit: 1000 }); ; ) {
      versions.push(...page.items.filter(each => each.handler === name))
      after = page.next
      if (after === undefined) break
      page = await store.workflows.handlers.list({ after, limit: 1000 })
    }
    if (versions.length === 0) throw new NothingFound({ what: 'handler', given: name, hint: 'rillflow handlers list' })
    out.print({ items: versions }, style =>
      versions
        .map(each =>
          fields(style, {
            handler: style.colour.cyan(`${each.handler} v${each.version}`),
            kind: kebabCase(each.kind),
            state: handlerState(each),
            events: each.types?.join(', ') ?? 'all',
            runners: each.workers,
            ...policyFields(each),
          }),
        )
        .join('\n\n'),
    )
  },
})

function policyFields({ policy }: HandlerDescription): Record<string, string> {
  const plain = Object.entries(policy).filter(([, value]) => value !== undefined && value !== null)
  return Object.fromEntries(
    plain.map(([name, value]) => {
      const words = kebabCase(name.replace(/Ms$/, '')).replaceAll('-', ' ')
      if (typeof value === 'object') return [words, JSON.stringify(value)]
      return [words, /Ms$/.test(name) ? duration(Number(value)) : String(value)]
    }),
  )
}

const pause = defineCommand({
  description: 'Nothing of it begins, in all versions and processes; its events queue. Running attempts end.',
  arguments: [handler],
  examples: ['rillflow handlers pause charge'],
  async run({ out, open, arguments: { handler: name } }) {
    const { store } = await open()
    await store.workflows.handlers.pause(name)
    out.print(
      { handler: name, state: 'paused' },
      () => `Paused ${name}. To undo this: rillflow handlers resume ${name}`,
    )
  },
})

const resume = defineCommand({
  description: 'Continues with the queued executions. A retired handler is given events again, from now on.',
  arguments: [handler],
  examples: ['rillflow handlers resume charge'],
  async run({ out, open, arguments: { handler: name } }) {
    const { store } = await open()
    await store.workflows.handlers.resume(name)
    out.print({ handler: name, state: 'active' }, () => `Resumed ${name}.`)
  },
})

const retire = defineCommand({
  description: 'It is given no more events. Open executions still run. It comes back when it is resumed.',
  arguments: [handler],
  options: { version: { kind: 'whole', value: 'VERSION', summary: 'Only this version. Default: all versions' } },
  examples: ['rillflow handlers retire charge --version 1 --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { handler: name }, options: { version } }) {
    const { store } = await open()
    const what = version === undefined ? name : `version ${version} of ${name}`
    if (!(await confirm(`give no more events to ${what}`))) return
    await store.workflows.handlers.retire(name, { version })
    out.print({ handler: name, version, state: 'retired' }, () => `Retired ${what}.`)
  },
})

const listLanes = listCommand({
  options: {
    handler: { kind: 'text', value: 'HANDLER', summary: 'Only lanes of this handler', completes: 'handler' },
    parked: { kind: 'flag', summary: 'Only lanes that wait for an operator' },
    ...pageOptions,
  },
  examples: ['rillflow lanes list --parked'],
  empty: 'No lane has executions, and none is parked.',
  list: (store, { parked, ...given }) => store.workflows.lanes.list({ ...given, isParked: parked || undefined }),
  columns: () => [
    { title: 'HANDLER', of: each => each.handler, paint: (_, colour) => colour.cyan },
    { title: 'KEY', of: ({ key }) => key, cut: true },
    {
      title: 'STATE',
      of: ({ isParked }) => (isParked ? 'parked' : 'active'),
      paint: ({ isParked }, colour) => paintState(isParked ? 'parked' : 'active', colour),
    },
    { title: 'OPEN', of: ({ open }) => open, right: true },
    { title: 'PARKED FOR', of: ({ parkedFor }) => parkedFor, cut: true },
  ],
})

const unpark = defineCommand({
  description: 'Its executions run in their order. The dead letter for which it was parked stays as it is.',
  arguments: [
    handler,
    { name: 'key', summary: 'The key of the lane. Default: all lanes of the handler', optional: true },
  ],
  examples: ['rillflow lanes unpark charge customer-7'],
  async run({ out, open, arguments: { handler: name, key } }) {
    const { store } = await open()
    const unparked = await store.workflows.lanes.unpark(name, { key })
    out.print({ handler: name, unparked }, () => `${count(unparked, 'lane')} of ${name} continued.`)
  },
})

export const handlers: Commands = defineVerbs({
  list: ['Show handlers, and what is open of each', list],
  show: ['Show a handler with its policy', show],
  pause: ['Begin nothing of a handler', pause],
  resume: ['Continue with a handler', resume],
  retire: ['Give a handler no more events', retire],
})

export const lanes: Commands = defineVerbs({
  list: ['Show the lanes of ordered handlers', listLanes],
  unpark: ['Let a parked lane continue', unpark],
})
