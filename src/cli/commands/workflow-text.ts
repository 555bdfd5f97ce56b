/** How workflows are shown to people: a status, a tree of events and handlers, and lines of activity. */
import type { Activity } from '../../workflows/insight/activity.ts'
import type { JoinDescription, OpenWait, RecordedStep, UndoDescription } from '../../workflows/insight/open-work.ts'
import type { TreeNode } from '../../workflows/insight/tree.ts'
import type { WorkflowStatus } from '../../workflows/status.ts'
import { kebabCase } from '../arguments.ts'
import { ago, clockTime, count, duration } from '../output/amount.ts'
import { type Style, toJson } from '../output/output.ts'
import { paintState } from '../output/state.ts'
import { cutMiddle, cutTo, fields, wrapped } from '../output/table.ts'

export function statusText(style: Style, status: WorkflowStatus): string {
  return fields(style, {
    workflow: style.colour.cyan(status.correlationId),
    state: paintState(status.state, style.colour)(kebabCase(status.state)),
    pending: status.pending,
    parked: status.parked === 0 ? undefined : status.parked,
    'dead letters': status.deadLetters,
    'last event': status.lastType,
    parent: status.parent,
    reason: status.reason,
    started: ago(status.startedAt, style.now),
    updated: ago(status.updatedAt, style.now),
  })
}

/** On a terminal the id gives way first, then the handler; an error that does not fit gets lines of its own below. */
export function activityLine(style: Style, activity: Activity, indent = 0): string {
  const { at, kind, outcome, correlationId, handler, eventType, attempt, runningMs, error } = activity
  const { colour } = style
  const width = (style.width ?? Number.POSITIVE_INFINITY) - indent
  const time = clockTime(at)
  const state = kind.padEnd(10)
  const details = [
    ...(attempt > 1 ? [`attempt ${attempt}`] : []),
    ...(outcome === undefined ? [] : [kebabCase(outcome)]),
    ...(runningMs === undefined ? [] : [duration(runningMs)]),
  ]
  const fixedOf = (): number => [time, state, '', '', ...details].join('  ').length
  while (details.length > 0 && fixedOf() + 2 * minText > width) details.pop()
  const fixed = fixedOf()
  const what = cutTo(`${handler} (${eventType ?? 'event deleted'})`, Math.max(minText, width - fixed - minText), style)
  const id = cutMiddle(correlationId, Math.max(minText, width - fixed - what.length), style)
  const paint = paintState(kind === 'completed' || kind === 'started' ? 'running' : kind, colour)
  const line = [colour.dim(time), colour.cyan(id), paint(state), what, ...details.map(colour.dim)].join('  ')
  if (error === undefined) return line
  const isBelow = fixed + id.length + what.length + 2 + error.message.length > width
  const message = isBelow ? `\n${wrapped(error.message, style.width, indent + 2)}` : `  ${error.message}`
  return `${line}${colour.red(message)}`
}

const minText = 10

/** Uses a list instead of recursion, because a chain of events may be longer than the stack is deep. */
export function* treeLines(style: Style, roots: readonly TreeNode[]): Generator<string> {
  const { branch, last, pipe } = style.symbols
  const remaining = roots.map(node => ({ node, indent: '', mark: '' })).reverse()
  for (let next = remaining.pop(); next !== undefined; next = remaining.pop()) {
    const { node, indent, mark } = next
    yield `${style.colour.dim(indent + mark)}${treeLabel(style, node)}`
    const deeper = mark === '' ? '' : mark === last ? `${indent}${' '.repeat(last.length)}` : `${indent}${pipe}`
    const children: readonly TreeNode[] = node.kind === 'event' ? [...node.handlers, ...node.events] : node.events
    const lines = children.map((child, at) => ({
      node: child,
      indent: deeper,
      mark: at === children.length - 1 ? last : branch,
    }))
    remaining.push(...lines.reverse())
  }
}

function treeLabel({ colour }: Style, node: TreeNode): string {
  if (node.kind === 'event') {
    const { type, position, batch, data } = node
    const place = batch === undefined ? '' : ` ${batch.index + 1} of ${batch.size}`
    const shown = data === undefined ? '' : `  ${toJson(data)}`
    return `${colour.bold(type)} ${colour.dim(`#${position}${place}`)}${shown}`
  }
  const { handler, isDead, attempts, runningMs, error } = node
  const state = isDead ? 'failed' : node.state
  const took = runningMs === undefined ? '' : ` ${colour.dim(duration(runningMs))}`
  const tries = attempts > 1 ? ` ${colour.dim(count(attempts, 'attempt'))}` : ''
  const message = error === undefined ? '' : ` ${colour.red(error.message)}`
  return `${handler} ${paintState(state, colour)(state)}${took}${tries}${message}`
}

interface OpenWork {
  readonly waits: readonly OpenWait[]
  readonly joins: readonly JoinDescription[]
  readonly steps: readonly RecordedStep[]
  readonly undos: readonly UndoDescription[]
}

/** The waits and records of the open executions of a workflow: a section for each kind that there is. */
export function openWorkLines({ now, colour }: Style, { waits, joins, steps, undos }: OpenWork): string[] {
  const sections = [
    waits.map(({ handler, type, child, dueAt }) => {
      const what = type ?? (child === undefined ? 'another workflow' : `workflow ${child}`)
      return `${colour.cyan(handler)} waits for ${what}${dueAt === undefined ? '' : `, until ${ago(dueAt, now)}`}`
    }),
    joins.map(
      ({ handler, state, size, arrived, failed }) =>
        `${colour.cyan(handler)} joins: ${arrived} of ${size} have arrived${failed === 0 ? '' : `, ${failed} failed`} (${state})`,
    ),
    steps.map(
      ({ handler, name, kind, state, at }) =>
        `${colour.cyan(handler)} ${kind} ${name}: ${state} ${colour.dim(ago(at, now) ?? '')}`,
    ),
    undos.map(({ handler, step, state }) => `${colour.cyan(handler)} undo of ${step}: ${state}`),
  ]
  return sections.filter(lines => lines.length > 0).map(lines => lines.join('\n'))
}
