/** Commands about workflows. `run` needs handlers from the configuration; the others only the database. */
import { onAbort } from '../../core/lifecycle.ts'
import type { Store } from '../../store.ts'
import type { Activity } from '../../workflows/insight/activity.ts'
import type { TreeNode } from '../../workflows/insight/tree.ts'
import { type WorkflowState, type WorkflowStatus, workflowStates } from '../../workflows/status.ts'
import { type Commands, defineCommand, defineVerbs, type Invocation, type Opened } from '../command.ts'
import { ago, clockTime, count, duration } from '../output/amount.ts'
import { complaints, type Style, toJson } from '../output/output.ts'
import { paintState } from '../output/state.ts'
import { fields, table } from '../output/table.ts'
import { NothingFound, NothingRegistered } from '../report-error.ts'

// One workflow by its id on the line, in full; an id that nothing is known of is an error.

export const workflowArgument = {
  name: 'workflow',
  summary: 'Its correlation id',
} as const

export async function knownStatus(store: Store, workflow: string): Promise<WorkflowStatus> {
  const status = await store.workflows.flow(workflow).status()
  if (
    status.startedAt === undefined &&
    (await store.events.readAll({ correlationId: workflow, limit: 1 }).toArray()).length === 0
  )
    throw new NothingFound({ what: 'workflow', given: workflow, hint: 'rillflow workflows list' })
  return status
}

export function statusInFull(style: Style, status: WorkflowStatus): string {
  return fields(style, {
    workflow: style.colour.cyan(status.correlationId),
    state: paintState(status.state, style.colour)(status.state),
    pending: status.pending,
    'dead letters': status.deadLetters,
    'last event': status.lastType,
    parent: status.parent,
    reason: status.reason,
    started: ago(status.startedAt, style.now),
    updated: ago(status.updatedAt, style.now),
  })
}

// A worker of the configuration's handlers.

export const workerOptions = {
  concurrency: {
    kind: 'whole',
    value: 'COUNT',
    default: 16,
    env: 'RILLFLOW_CONCURRENCY',
    summary: 'The most handlers that run at once',
  },
  node: {
    kind: 'text',
    value: 'NAME',
    env: 'RILLFLOW_NODE',
    summary: 'A name that stays the same when it is started again',
  },
} as const

export interface Work extends Pick<Invocation, 'out' | 'config' | 'signal'> {
  readonly options: { readonly concurrency: number; readonly node: string | undefined }
}

export async function workUntil({ store }: Opened, { out, config, options, signal }: Work): Promise<void> {
  const { concurrency, node } = options
  const handlers = store.workflows.registered()
  if (handlers.length === 0) throw new NothingRegistered({ what: 'handlers', path: (await config())?.path })
  const worker = store.workflows.worker({ concurrency, node })
  await worker.start()
  out.note(`Running ${count(handlers.length, 'handler')}: ${handlers.join(', ')}. Ctrl-C ends it.`)
  await new Promise<void>(resolve => onAbort(signal, resolve))
  await worker.stop()
}

const list = defineCommand({
  options: {
    state: { kind: 'text', many: true, choices: workflowStates, value: 'STATE', summary: 'Only those' },
    since: { kind: 'time', value: 'TIME', summary: 'Only those that began since: a time, or 15m, 2h, 7d' },
    parent: { kind: 'text', value: 'WORKFLOW', summary: 'Only children of this one' },
    after: { kind: 'position', value: 'POSITION', summary: 'Where the page before ended: its "next"' },
    limit: { kind: 'whole', default: 50, value: 'COUNT', summary: 'How many at most' },
  },
  examples: ['rillflow workflows list --state failed --state waiting', 'rillflow workflows list --since 1h --json'],
  async run({ out, open, options }) {
    const { store } = await open()
    const { state, since, parent, after, limit } = options
    const wanted = state.length === 0 ? undefined : (state as readonly WorkflowState[])
    const page = await store.workflows.list({ state: wanted, startedAfter: since, parent, after, limit })
    out.print(page, style =>
      table(
        style,
        page.workflows,
        [
          { title: 'WORKFLOW', of: each => each.correlationId, paint: (_, colour) => colour.cyan },
          { title: 'STATE', of: each => each.state, paint: (each, colour) => paintState(each.state, colour) },
          { title: 'PENDING', of: each => each.pending, right: true },
          { title: 'DEAD LETTERS', of: each => each.deadLetters, right: true },
          { title: 'LAST EVENT', of: each => each.lastType, cut: true },
          { title: 'STARTED', of: each => ago(each.startedAt, style.now), paint: (_, colour) => colour.dim },
        ],
        'No workflows.',
      ),
    )
    if (page.next !== undefined) out.note(`There may be more: rillflow workflows list --after ${page.next}`)
  },
})

const show = defineCommand({
  arguments: [workflowArgument],
  options: { attempts: { kind: 'whole', default: 20, value: 'COUNT', summary: 'How many of the latest attempts' } },
  examples: ['rillflow workflows show 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { workflow }, options }) {
    const { store } = await open()
    const status = await knownStatus(store, workflow)
    const { attempts } = await store.workflows.attempts({ correlationId: workflow, limit: options.attempts })
    out.print({ ...status, attempts }, style =>
      [
        statusInFull(style, status),
        '',
        table(
          style,
          attempts,
          [
            { title: 'HANDLER', of: each => each.handler },
            { title: 'ATTEMPT', of: each => each.attempt, right: true },
            {
              title: 'RESULT',
              of: each => each.outcome ?? each.kind,
              paint: (each, colour) => paintState(each.kind, colour),
            },
            {
              title: 'TOOK',
              of: each => (each.runningMs === undefined ? undefined : duration(each.runningMs)),
              right: true,
            },
            { title: 'ENDED', of: each => ago(each.at, style.now), paint: (_, colour) => colour.dim },
            { title: 'ERROR', of: each => each.error?.message, cut: true },
          ],
          'No attempts yet.',
        ),
      ].join('\n'),
    )
  },
})

const tree = defineCommand({
  description: 'Events, the handlers they ran, the events these emitted, and so on.',
  arguments: [workflowArgument],
  options: {
    mermaid: { kind: 'flag', summary: 'As the text of a Mermaid flowchart' },
    limit: { kind: 'whole', default: 1000, value: 'COUNT', summary: 'The most events' },
  },
  examples: [
    'rillflow workflows tree 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001',
    'rillflow workflows tree 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --mermaid > flow.mmd',
  ],
  async run({ out, open, arguments: { workflow }, options: { mermaid, limit } }) {
    const { store } = await open()
    await knownStatus(store, workflow)
    const tree = await store.workflows.flow(workflow).tree({ limit })
    if (mermaid) {
      const text = store.workflows.mermaid(tree)
      out.print({ correlationId: workflow, mermaid: text }, () => text.trimEnd())
    } else
      out.print(tree, style =>
        [...linesOf(style, tree.roots), ...(tree.isWhole ? [] : [style.symbols.ellipsis])].join('\n'),
      )
  },
})

/** By hand and not by recursion: a chain of events may be longer than the stack is deep. */
function* linesOf(style: Style, roots: readonly TreeNode[]): Generator<string> {
  const { branch, last, pipe } = style.symbols
  const left = roots.map(node => ({ node, lead: '', joint: '' })).reverse()
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const { node, lead, joint } = next
    yield `${style.colour.dim(lead + joint)}${labelOf(style, node)}`
    const below = joint === '' ? '' : joint === last ? `${lead}${' '.repeat(last.length)}` : `${lead}${pipe}`
    const children: readonly TreeNode[] = node.kind === 'event' ? [...node.handlers, ...node.events] : node.events
    const placed = children.map((child, at) => ({
      node: child,
      lead: below,
      joint: at === children.length - 1 ? last : branch,
    }))
    left.push(...placed.reverse())
  }
}

function labelOf({ colour }: Style, node: TreeNode): string {
  if (node.kind === 'event') return `${colour.bold(node.type)} ${colour.dim(`#${node.position}`)}`
  const { handler, state, isDead, attempts, runningMs, error } = node
  const shown = isDead ? 'failed' : state
  const took = runningMs === undefined ? '' : ` ${colour.dim(duration(runningMs))}`
  const tries = attempts > 1 ? ` ${colour.dim(`${attempts} attempts`)}` : ''
  return `${handler} ${paintState(shown, colour)(shown)}${took}${tries}${error === undefined ? '' : ` ${colour.red(error.message)}`}`
}

const watch = defineCommand({
  description:
    'Each thing once and in order. Of one workflow from its beginning, of all of them from now on. With --json a line of NDJSON each.',
  arguments: [{ name: 'workflow', summary: 'Its correlation id; without it all workflows', optional: true }],
  options: {
    untilSettled: { kind: 'flag', summary: 'End when the workflow is settled' },
    handler: { kind: 'text', value: 'NAME', names: 'handler', summary: 'Only of this handler' },
    after: { kind: 'position', value: 'POSITION', summary: 'Go on behind a line seen before' },
  },
  examples: [
    'rillflow workflows watch',
    'rillflow workflows watch 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --until-settled',
  ],
  async run({ out, open, arguments: { workflow }, options: { untilSettled, handler, after }, signal }) {
    const { store } = await open()
    const until = untilSettled ? ('settled' as const) : undefined
    const lines =
      workflow === undefined
        ? store.workflows.watch({ handler, after, signal })
        : store.workflows.flow(workflow).watch({ handler, after, until, signal })
    for await (const activity of lines) out.line(activity, style => activityLine(style, activity))
  },
})

export function activityLine({ colour }: Style, activity: Activity): string {
  const { at, kind, outcome, correlationId, handler, eventType, attempt, runningMs, error } = activity
  const told = [
    colour.dim(clockTime(at)),
    colour.cyan(correlationId),
    paintState(kind === 'completed' || kind === 'started' ? 'running' : kind, colour)(kind.padEnd(10)),
    `${handler} (${eventType ?? 'event gone'})`,
    ...(attempt > 1 ? [colour.dim(`attempt ${attempt}`)] : []),
    ...(outcome === undefined ? [] : [colour.dim(outcome)]),
    ...(runningMs === undefined ? [] : [colour.dim(duration(runningMs))]),
    ...(error === undefined ? [] : [colour.red(error.message)]),
  ]
  return told.join('  ')
}

const publish = defineCommand({
  description: 'Somebody has to run the handlers: `rillflow run`, or your program.',
  arguments: [
    { name: 'type', summary: 'The type of the event' },
    { name: 'data', summary: 'JSON', kind: 'json', optional: true },
  ],
  options: {
    correlationId: { kind: 'text', value: 'ID', summary: 'The workflow it is part of. Default: a new one' },
    id: { kind: 'text', value: 'UUID', summary: 'Makes it repeatable: the same id is published once' },
    user: { kind: 'text', value: 'USER', summary: 'Who did it' },
    wait: { kind: 'flag', summary: 'Until the workflow is settled' },
    timeoutMs: { kind: 'whole', value: 'MS', default: 30_000, summary: 'With --wait: how long' },
  },
  examples: [`rillflow workflows publish OrderPlaced '{"total":99}' --wait`],
  async run({ out, open, arguments: { type, data }, options, signal }) {
    const { store } = await open({ creates: true })
    const { correlationId, id, user, wait, timeoutMs } = options
    const flow = await store.workflows.publish(type, data ?? {}, { correlationId, id, userId: user, signal })
    if (!wait) {
      out.print({ correlationId: flow.correlationId, type }, () => `Published ${type}, workflow ${flow.correlationId}.`)
      return
    }
    const status = await flow.settled({ timeoutMs, signal })
    out.print(status, style => statusInFull(style, status))
  },
})

const signal = defineCommand({
  description: 'For whoever waits for such an event in it.',
  arguments: [
    workflowArgument,
    { name: 'type', summary: 'The type of the event' },
    { name: 'data', summary: 'JSON', kind: 'json', optional: true },
  ],
  examples: [`rillflow workflows signal 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 OrderApproved '{"by":"Ada"}'`],
  async run({ out, open, arguments: { workflow, type, data } }) {
    const { store } = await open()
    await knownStatus(store, workflow)
    await store.workflows.flow(workflow).signal(type, data ?? {})
    out.print({ correlationId: workflow, type }, () => `Signalled ${type} to workflow ${workflow}.`)
  },
})

const cancel = defineCommand({
  description:
    'Nothing more of it, or of what it has started, is run; what runs is told. What has been done stays done, unless it is compensated.',
  arguments: [workflowArgument],
  options: {
    reason: { kind: 'text', value: 'TEXT', summary: 'Why, for people' },
    compensate: { kind: 'flag', summary: 'Run the undos that its steps have recorded, newest first' },
  },
  examples: [
    'rillflow workflows cancel 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --reason "out of stock" --compensate --yes',
  ],
  destructive: true,
  async run({ out, open, confirm, arguments: { workflow }, options: { reason, compensate } }) {
    const { store } = await open()
    const before = await knownStatus(store, workflow)
    const deed = compensate ? 'cancel and compensate' : 'cancel'
    if (!(await confirm(`${deed} workflow ${workflow} (${before.state}, ${before.pending} pending)`))) return
    const status = await store.workflows.flow(workflow).cancel({ reason, compensate })
    out.print(status, style => statusInFull(style, status))
  },
})

const retry = defineCommand({
  description: 'Asks for all its open dead letters; the next worker that has their handlers runs them.',
  arguments: [workflowArgument],
  options: { handler: { kind: 'text', value: 'NAME', names: 'handler', summary: 'Only what this handler failed on' } },
  examples: ['rillflow workflows retry 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { workflow }, options: { handler } }) {
    const { store } = await open()
    await knownStatus(store, workflow)
    const asked = await store.workflows.deadLetters.retryAll({ correlationId: workflow, handler })
    out.print({ correlationId: workflow, ...asked }, () => {
      const told = `Asked for another try of ${count(asked.requested, 'dead letter')} of workflow ${workflow}.`
      return asked.isRunning || asked.requested === 0 ? told : `${told} No worker is running: rillflow run`
    })
  },
})

const schedules = defineCommand({
  examples: ['rillflow workflows schedules'],
  async run({ out, open }) {
    const { store } = await open()
    const schedules = await store.workflows.schedules.list()
    out.print(schedules, style =>
      table(
        style,
        schedules,
        [
          { title: 'SCHEDULE', of: each => each.name, paint: (_, colour) => colour.cyan },
          {
            title: 'STATE',
            of: each => each.state,
            paint: (each, colour) => paintState(each.state === 'active' ? 'running' : each.state, colour),
          },
          { title: 'NEXT', of: each => ago(each.nextAt, style.now) },
          { title: 'LAST', of: each => ago(each.lastAt, style.now), paint: (_, colour) => colour.dim },
          { title: 'OUTCOME', of: each => each.lastOutcome },
          { title: 'CODE', of: each => (each.isHere ? 'here' : 'elsewhere'), paint: (_, colour) => colour.dim },
          { title: 'WHEN', of: each => toJson(each.definition), cut: true },
        ],
        'No schedules.',
      ),
    )
  },
})

const workers = defineCommand({
  description:
    'And the handlers, with what each still has to do: one without workers waits for somebody who has its code.',
  examples: ['rillflow workflows workers'],
  async run({ out, open }) {
    const { store } = await open()
    const [workers, handlers] = [await store.workflows.workers(), await store.workflows.handlers()]
    out.print({ workers, handlers }, style =>
      [
        table(
          style,
          workers,
          [
            { title: 'WORKER', of: each => each.id, cut: true, paint: (_, colour) => colour.cyan },
            { title: 'NODE', of: each => each.node },
            { title: 'RUNNING', of: each => `${each.running} of ${each.concurrency}`, right: true },
            {
              title: 'HEARTBEAT',
              of: each => `${duration(each.heartbeatAgeMs)} ago`,
              paint: (_, colour) => colour.dim,
            },
            { title: 'STARTED', of: each => ago(each.startedAt, style.now), paint: (_, colour) => colour.dim },
          ],
          'No workers are alive.',
        ),
        '',
        table(
          style,
          handlers,
          [
            {
              title: 'HANDLER',
              of: each => (each.version === 1 ? each.handler : `${each.handler} v${each.version}`),
              paint: (_, colour) => colour.cyan,
            },
            { title: 'KIND', of: each => each.kind },
            { title: 'WORKERS', of: each => each.workers, right: true },
            { title: 'READY', of: each => each.open.ready, right: true },
            { title: 'RUNNING', of: each => each.open.running, right: true },
            {
              title: 'WAITING',
              of: ({ open: { ready, running, ...waiting } }) => Object.values(waiting).reduce((a, b) => a + b, 0),
              right: true,
            },
            { title: 'EVENTS', of: each => each.types?.join(', ') ?? 'all', cut: true },
          ],
          'No handlers.',
        ),
      ].join('\n'),
    )
  },
})

const run = defineCommand({
  description:
    'Takes work as long as it runs, together with workers elsewhere. Projections and subscriptions are run by `rillflow run`.',
  options: workerOptions,
  examples: ['rillflow workflows run --concurrency 32'],
  async run({ out, open, config, options, signal }) {
    const opened = await open({ logger: complaints(out), creates: true })
    await workUntil(opened, { out, config, options, signal })
  },
})

export const workflows: Commands = defineVerbs({
  list: ['Workflows, newest first', list],
  show: ['Where a workflow stands', show],
  tree: ['What caused what', tree],
  watch: ['What happens, as it happens', watch],
  publish: ['Publish an event that begins a workflow', publish],
  signal: ['Publish an event into a workflow', signal],
  cancel: ['End a workflow', cancel],
  retry: ['Try again what failed in a workflow', retry],
  schedules: ['What runs when it is time', schedules],
  workers: ['The workers that are alive', workers],
  run: ['Run handlers until Ctrl-C', run],
})
