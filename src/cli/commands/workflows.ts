/**
 * `rillflow workflows`: workflows and their executions. A workflow is named by its correlation id.
 *
 *     look       list · show · tree · watch · executions
 *     control    publish · signal · cancel · cancel-all · retry · resume · reject
 *
 * No command here needs the code of handlers: `rillflow run` runs them, and stores which events each of them wants.
 *
 * What can fail: a workflow that is not known (`NothingFound`).
 */
import type { Store } from '../../store.ts'
import type { ExecutionDescription } from '../../workflows/insight/list-executions.ts'
import type { WorkflowState, WorkflowStatus } from '../../workflows/status.ts'
import { kebabCase } from '../arguments.ts'
import { type Argument, type Commands, defineCommand, defineVerbs } from '../command.ts'
import { listCommand, pageOptions } from '../list-command.ts'
import { ago, count, duration } from '../output/amount.ts'
import type { Output, Style } from '../output/output.ts'
import { paintState } from '../output/state.ts'
import { type Column, table } from '../output/table.ts'
import { NothingFound, WrongUsage } from '../report-error.ts'
import { explanationText } from './events.ts'
import { activityLine, openWorkLines, statusText, treeLines } from './workflow-text.ts'

const workflow = { name: 'workflow', summary: 'The correlation id of the workflow' } as const satisfies Argument
const type = { name: 'type', summary: 'The type of the event' } as const satisfies Argument
const data = {
  name: 'data',
  summary: 'The data of the event as JSON',
  kind: 'json',
  optional: true,
} as const satisfies Argument

/** Listed here and not imported, because the code that has them is not needed for help. */
const states = [
  ...(['running', 'waiting', 'parked', 'failed', 'compensating', 'compensated', 'compensationFailed'] as const),
  ...(['cancelled', 'settled'] as const),
] satisfies WorkflowState[]

const list = listCommand({
  options: {
    state: { kind: 'text', many: true, choices: states, value: 'STATE', summary: 'Only workflows in this state' },
    since: {
      kind: 'time',
      value: 'TIME',
      summary: 'Only workflows that began after this: a time, or an age such as 15m, 2h, 7d',
    },
    parent: { kind: 'text', value: 'WORKFLOW', summary: 'Only children of this workflow' },
    attribute: {
      kind: 'text',
      many: true,
      value: 'NAME=VALUE',
      summary: 'Only workflows with this attribute; a number, true or false is one',
    },
    retrying: { kind: 'flag', summary: 'Only workflows that wait for a retry of a handler that has failed' },
    ...pageOptions,
  },
  examples: ['rillflow workflows list --state failed --state waiting', 'rillflow workflows list --since 1h --json'],
  empty: 'There are no workflows.',
  list: (store, { state, since, retrying, attribute, ...given }) =>
    store.workflows.list({
      attributes: attributesFrom(attribute),
      ...{ state: state.length === 0 ? undefined : state, startedAfter: since, ...given },
      isRetrying: retrying || undefined,
    }),
  columns: ({ now }) => [
    { title: 'WORKFLOW', of: ({ correlationId }) => correlationId, paint: (_, colour) => colour.cyan },
    { title: 'STATE', of: ({ state }) => kebabCase(state), paint: ({ state }, colour) => paintState(state, colour) },
    { title: 'PENDING', of: ({ pending }) => pending, right: true, leftOut: 3 },
    { title: 'PARKED', of: ({ parked }) => parked, right: true, leftOut: 2 },
    { title: 'DEAD LETTERS', of: ({ deadLetters }) => deadLetters, right: true, leftOut: 1 },
    { title: 'LAST EVENT', of: ({ lastType }) => lastType, cut: true },
    { title: 'STARTED', of: ({ startedAt }) => ago(startedAt, now), paint: (_, colour) => colour.dim },
  ],
})

function attributesFrom(given: readonly string[]): Record<string, string | number | boolean> | undefined {
  if (given.length === 0) return undefined
  const entries = given.map((text): [string, string | number | boolean] => {
    const [, name, value = ''] = /^([^=]+)=(.*)$/s.exec(text) ?? []
    if (name === undefined)
      throw new WrongUsage({ reason: `--attribute must be NAME=VALUE, not ${JSON.stringify(text)}` })
    if (value === 'true' || value === 'false') return [name, value === 'true']
    return [name, /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value]
  })
  return Object.fromEntries(entries)
}

const show = defineCommand({
  arguments: [workflow],
  options: {
    attempts: { kind: 'whole', default: 20, value: 'COUNT', summary: 'The number of latest attempts to show' },
  },
  examples: ['rillflow workflows show 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { workflow }, options }) {
    const { store } = await open()
    const status = await loadStatus(store, workflow)
    const { items: attempts } = await store.workflows.attempts({ correlationId: workflow, limit: options.attempts })
    const executions = await store.workflows.executions.list({ correlationId: workflow, limit: options.attempts })
    const handle = store.workflows.get(workflow)
    const [waits, joins] = [await handle.waits(), await handle.joins()]
    const [steps, undos] = [await handle.steps(), await handle.undos()]
    out.print({ ...status, open: executions.items, waits, joins, steps, undos, attempts }, style => {
      const columns: Column<(typeof attempts)[number]>[] = [
        { title: 'HANDLER', of: ({ handler }) => handler },
        { title: 'ATTEMPT', of: ({ attempt }) => attempt, right: true },
        {
          title: 'RESULT',
          of: ({ outcome, kind }) => kebabCase(outcome ?? kind),
          paint: ({ kind }, colour) => paintState(kind, colour),
        },
        {
          title: 'TOOK',
          of: ({ runningMs }) => (runningMs === undefined ? undefined : duration(runningMs)),
          right: true,
        },
        { title: 'ENDED', of: ({ at }) => ago(at, style.now), paint: (_, colour) => colour.dim },
        { title: 'ERROR', of: ({ error }) => error?.message, below: true },
      ]
      const open = executions.items.length === 0 ? [] : [table(style, executions.items, openColumns(style), '')]
      const ended = table(style, attempts, columns, 'There are no attempts yet.')
      const recorded = openWorkLines(style, { waits, joins, steps, undos })
      return [statusText(style, status), ...open, ...recorded, ended].join('\n\n')
    })
  },
})

/** The executions that wait or run, with the time at which they continue. */
const openColumns = ({ now }: Style): Column<ExecutionDescription>[] => [
  { title: 'OPEN', of: ({ handler }) => handler },
  { title: 'STATE', of: ({ state }) => state, paint: ({ state }, colour) => paintState(state, colour) },
  { title: 'ATTEMPT', of: ({ attempt }) => attempt, right: true },
  { title: 'DUE', of: ({ dueAt }) => ago(dueAt, now) },
  { title: 'EXECUTION', of: ({ executionId }) => executionId, cut: true, paint: (_, colour) => colour.dim },
]

const tree = defineCommand({
  description: 'Shows the events, the handlers that each event has run, the events that these have emitted, and so on.',
  arguments: [workflow],
  options: {
    mermaid: { kind: 'flag', summary: 'Print the text of a Mermaid flowchart' },
    data: { kind: 'flag', summary: 'Also show the data of the events' },
    limit: { kind: 'whole', default: 1000, value: 'COUNT', summary: 'The maximum number of events' },
  },
  examples: [
    'rillflow workflows tree 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001',
    'rillflow workflows tree 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --mermaid > workflow.mmd',
  ],
  async run({ out, open, arguments: { workflow }, options: { mermaid, data, limit } }) {
    const { store } = await open()
    await loadStatus(store, workflow)
    const handle = store.workflows.get(workflow)
    if (mermaid) {
      const text = await handle.mermaid({ limit })
      out.print({ correlationId: workflow, mermaid: text }, () => text.trimEnd())
    } else {
      const tree = await handle.tree({ limit, data })
      out.print(tree, style =>
        [...treeLines(style, tree.roots), ...(tree.isWhole ? [] : [style.symbols.ellipsis])].join('\n'),
      )
    }
  },
})

const watch = defineCommand({
  description:
    'Prints each activity once and in order: of one workflow from its beginning, of all workflows from now on. With --json each is a line of NDJSON.',
  arguments: [{ name: 'workflow', summary: 'Only this workflow, by its correlation id', optional: true }],
  options: {
    untilSettled: { kind: 'flag', summary: 'End when the workflow is settled' },
    handler: { kind: 'text', value: 'NAME', completes: 'handler', summary: 'Only this handler' },
    after: {
      kind: 'position',
      value: 'POSITION',
      summary: 'Begin after this line: the position that --json prints with it',
    },
  },
  examples: [
    'rillflow workflows watch',
    'rillflow workflows watch 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --until-settled',
  ],
  async run({ out, open, arguments: { workflow }, options: { untilSettled, handler, after }, signal }) {
    const { store } = await open()
    const until = untilSettled ? ('settled' as const) : undefined
    const activities =
      workflow === undefined
        ? store.workflows.watch({ handler, from: after, signal })
        : store.workflows.get(workflow).watch({ handler, from: after, until, signal })
    for await (const activity of activities) out.line(activity, style => activityLine(style, activity))
    // A following line is not to run on a workflow that is not settled.
    return untilSettled && signal.aborted ? 130 : 0
  },
})

const publish = defineCommand({
  description:
    '`rillflow run` or your program runs the handlers. A handler gets the events that are published after one of them was first started with it, unless it is defined with from: "start".',
  arguments: [type, data],
  options: {
    correlationId: { kind: 'text', value: 'ID', summary: 'The workflow of the event. Default: a new one' },
    id: { kind: 'text', value: 'UUID', summary: 'The id of the event: the same id is published only once' },
    user: { kind: 'text', value: 'USER', summary: 'The user who caused it' },
    wait: { kind: 'flag', summary: 'Wait until the workflow is settled' },
    timeoutMs: { kind: 'whole', value: 'MS', default: 30_000, summary: 'With --wait: the maximum time to wait' },
  },
  examples: [`rillflow workflows publish OrderPlaced '{"total":99}' --wait`],
  async run({ out, open, arguments: { type, data }, options, signal }) {
    const { store } = await open({ create: true, purpose: 'write' })
    await noteNewHandlers(store, out)
    const { correlationId, id, user, wait, timeoutMs } = options
    const workflow = await store.workflows.publish(type, data ?? {}, { correlationId, id, userId: user, signal })
    if (wait) {
      await noteNoWorker(store, out)
      const status = await workflow.waitUntilSettled({ timeoutMs, signal })
      out.print(status, style => statusText(style, status))
    } else {
      const result = { correlationId: workflow.correlationId, type }
      out.print(result, () => `Published ${type}, workflow ${workflow.correlationId}.`)
    }
  },
})

/** Said at once, and not only when the time is over. */
async function noteNoWorker(store: Store, out: Output): Promise<void> {
  const { items } = await store.workflows.workers({ limit: 1 })
  if (items.length > 0) return
  out.note('No runner runs handlers now, so nothing can settle the workflow. In a second terminal: rillflow run')
}

/** A command does not store handlers, so those that were never started may not get the event. */
async function noteNewHandlers(store: Store, out: Output): Promise<void> {
  const stored = new Set((await store.workflows.handlers.list()).items.map(({ handler }) => handler))
  const missing = store.runners.registered().handlers.filter(name => !stored.has(name))
  if (missing.length === 0) return
  const [names, begin] = [missing.join(', '), missing.length === 1 ? 'It begins' : 'They begin']
  out.note(`No runner was started yet with ${names}. ${begin} with later events, unless defined with from: 'start'.`)
}

const signal = defineCommand({
  description: 'Handlers of the workflow that wait for an event of this type continue.',
  arguments: [workflow, type, data],
  examples: [`rillflow workflows signal 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 OrderApproved '{"by":"Ada"}'`],
  async run({ out, open, arguments: { workflow, type, data } }) {
    const { store } = await open()
    await loadStatus(store, workflow)
    await store.workflows.get(workflow).signal(type, data ?? {})
    out.print({ correlationId: workflow, type }, () => `Signalled ${type} to workflow ${workflow}.`)
  },
})

const cancel = defineCommand({
  description:
    'No handler of the workflow or of its children is started again, and the signal of running ones aborts. Completed steps are not undone without --compensate.',
  arguments: [workflow],
  options: {
    reason: { kind: 'text', value: 'TEXT', summary: 'The reason, which is stored with the workflow' },
    compensate: { kind: 'flag', summary: 'Run the undos that its steps have recorded, the newest first' },
  },
  examples: [
    'rillflow workflows cancel 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --reason "out of stock" --compensate --yes',
  ],
  destructive: true,
  async run({ out, open, confirm, arguments: { workflow }, options: { reason, compensate } }) {
    const { store } = await open()
    const { state, pending } = await loadStatus(store, workflow)
    const verb = compensate ? 'cancel and compensate' : 'cancel'
    if (!(await confirm(`${verb} workflow ${workflow} (${state}, ${pending} pending)`))) return
    const status = await store.workflows.get(workflow).cancel({ reason, compensate })
    out.print(status, style => statusText(style, status))
  },
})

const cancelMany = defineCommand({
  description:
    'Cancels every workflow that matches and is not over, with the workflows that they have started. Needs a condition.',
  options: {
    state: {
      kind: 'text',
      many: true,
      choices: ['running', 'waiting', 'parked', 'failed'],
      value: 'STATE',
      summary: 'Only workflows in this state',
    },
    since: { kind: 'time', value: 'TIME', summary: 'Only workflows that began after this' },
    until: { kind: 'time', value: 'TIME', summary: 'Only workflows that began before this' },
    parent: { kind: 'text', value: 'WORKFLOW', summary: 'Only children of this workflow' },
    reason: { kind: 'text', value: 'TEXT', summary: 'The reason, which is stored with each workflow' },
    compensate: { kind: 'flag', summary: 'Run the undos that their steps have recorded, the newest first' },
  },
  examples: ['rillflow workflows cancel-all --state failed --until 7d --reason "too old" --yes'],
  destructive: true,
  async run({ out, open, confirm, options: { state, since, until, parent, reason, compensate }, signal }) {
    const filter = {
      ...{ state: state.length === 0 ? undefined : state, parent },
      ...{ startedAfter: since, startedBefore: until },
    }
    if (Object.values(filter).every(condition => condition === undefined))
      throw new WrongUsage({ reason: 'cancel-all needs a condition: --state, --since, --until or --parent' })
    const { store } = await open()
    const verb = compensate ? 'cancel and compensate' : 'cancel'
    if (!(await confirm(`${verb} all workflows that match`))) return
    const bar = out.progress('Cancelling')
    const result = await store.workflows
      .cancelAll(filter, {
        ...{ reason, compensate, signal },
        onProgress: cancelled => bar.update(cancelled, undefined, 'workflow'),
      })
      .finally(() => bar.end())
    out.print(result, () => `Cancelled ${count(result.cancelled, 'workflow')}.`)
  },
})

const retry = defineCommand({
  description: 'Requests a retry of all its open dead letters. A runner that has their handlers carries it out.',
  arguments: [workflow],
  options: {
    handler: { kind: 'text', value: 'NAME', completes: 'handler', summary: 'Only dead letters of this handler' },
  },
  examples: ['rillflow workflows retry 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { workflow }, options: { handler } }) {
    const { store } = await open()
    await loadStatus(store, workflow)
    const result = await store.deadLetters.retryAll({
      correlationId: workflow,
      of: handler === undefined ? undefined : { handler },
    })
    out.print({ correlationId: workflow, ...result }, () => {
      const requested = `Requested a retry of ${count(result.requested, 'dead letter')} of workflow ${workflow}.`
      if (result.isRunning || result.requested === 0) return requested
      return `${requested} No runner has their handlers now; start one with: rillflow run`
    })
  },
})

const resume = defineCommand({
  description:
    'An execution is parked when the code of its handler does not fit its recorded steps. Deploy code that fits first, or it is parked again.',
  arguments: [workflow],
  examples: ['rillflow workflows resume 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { workflow } }) {
    const { store } = await open()
    const parked = await parkedOf(store, workflow)
    for (const id of parked) await store.workflows.executions.resume(id)
    const resumed = count(parked.length, 'parked execution')
    out.print({ correlationId: workflow, resumed: parked }, () => `Resumed ${resumed} of workflow ${workflow}.`)
  },
})

const reject = defineCommand({
  description:
    'A runner that has their handlers dead-letters them instead of running them. A retry of such a dead letter runs with the newest version of the handler.',
  arguments: [workflow],
  examples: ['rillflow workflows reject 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { workflow } }) {
    const { store } = await open()
    const parked = await parkedOf(store, workflow)
    const executions = count(parked.length, 'parked execution')
    if (!(await confirm(`dead-letter ${executions} of workflow ${workflow}`))) return
    for (const id of parked) await store.workflows.executions.reject(id)
    out.print({ correlationId: workflow, rejected: parked }, () => `Rejected ${executions} of workflow ${workflow}.`)
  },
})

async function parkedOf(store: Store, workflow: string): Promise<string[]> {
  await loadStatus(store, workflow)
  const page = await store.workflows.executions.list({ state: 'parked', correlationId: workflow, limit: 10_000 })
  return page.items.map(({ executionId }) => executionId)
}

const executions = listCommand({
  options: {
    handler: { kind: 'text', value: 'HANDLER', summary: 'Only executions of this handler', completes: 'handler' },
    state: {
      kind: 'text',
      choices: ['ready', 'running', 'delayed', 'suspended', 'blocked', 'held', 'unkeyed', 'parked', 'stopping'],
      value: 'STATE',
      summary: 'Only executions in this state',
    },
    workflow: { kind: 'text', value: 'WORKFLOW', summary: 'Only executions of this workflow' },
    ...pageOptions,
  },
  examples: ['rillflow workflows executions --state delayed', 'rillflow workflows executions --handler charge --json'],
  empty: 'There are no open executions.',
  list: (store, { workflow: correlationId, ...given }) => store.workflows.executions.list({ ...given, correlationId }),
  columns: ({ now }) => [
    { title: 'EXECUTION', of: ({ executionId }) => executionId },
    { title: 'HANDLER', of: ({ handler }) => handler, paint: (_, colour) => colour.cyan },
    { title: 'STATE', of: ({ state }) => state },
    { title: 'ATTEMPT', of: ({ attempt }) => attempt, right: true },
    { title: 'QUEUED', of: ({ queuedAt }) => ago(queuedAt, now), paint: (_, colour) => colour.dim },
    { title: 'DUE', of: ({ dueAt }) => dueAt?.toISOString() },
    { title: 'WORKFLOW', of: ({ correlationId }) => correlationId, cut: true },
  ],
})

const run = defineCommand({
  description:
    'The execution must be ready, or wait for its next attempt. Needs the code of its handler from the configuration. Other executions of the handler stay as they are.',
  arguments: [{ name: 'execution', summary: 'The id of the execution, as `workflows executions` shows it' }],
  examples: ['rillflow workflows run 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { execution }, signal }) {
    const { store } = await open({ purpose: 'write' })
    const attempt = await store.workflows.executions.run(execution, { signal })
    out.print(attempt ?? { executionId: execution, kind: 'suspended' }, style =>
      attempt === undefined ? `Execution ${execution} waits.` : activityLine(style, attempt),
    )
  },
})

const why = defineCommand({
  description: 'Each execution that is open is listed with what it waits for, and each dead letter.',
  arguments: [workflow],
  examples: ['rillflow workflows why 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { workflow } }) {
    const { store } = await open()
    await loadStatus(store, workflow)
    const found = (await store.explain({ workflow }))!
    out.print(found, style => explanationText(style, found))
  },
})

export const workflows: Commands = defineVerbs({
  list: ['Show workflows, the newest first', list],
  show: ['Show the state of a workflow and its attempts', show],
  why: ['Show why a workflow is not settled', why],
  executions: ['Show the executions that are open', executions],
  run: ['Run one execution by hand, also while its handler is paused', run],
  tree: ['Show the events and handlers of a workflow as a tree', tree],
  watch: ['Show the activity of handlers as it happens', watch],
  publish: ['Publish an event that begins a workflow', publish],
  signal: ['Publish an event into a workflow', signal],
  cancel: ['Cancel a workflow', cancel],
  'cancel-all': ['Cancel all workflows that match', cancelMany],
  retry: ['Retry the dead letters of a workflow', retry],
  resume: ['Let the parked executions of a workflow continue', resume],
  reject: ['Dead-letter the parked executions of a workflow', reject],
})

async function loadStatus(store: Store, workflow: string): Promise<WorkflowStatus> {
  const status = await store.workflows.get(workflow).status()
  if (status.startedAt !== undefined) return status
  const events = await store.events.readAll({ correlationId: workflow, limit: 1 }).toArray()
  if (events.length > 0) return status
  throw new NothingFound({ what: 'workflow', given: workflow, hint: 'rillflow workflows list' })
}
