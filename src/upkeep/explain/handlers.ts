/** The verdict of each handler about an event, and the reasons why open executions of a workflow wait. */
import { counted } from '../../core/core.ts'
import { isRillflowError } from '../../core/errors.ts'
import { everyItem } from '../../core/page.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { HandlerDescription } from '../../workflows/insight/handlers.ts'
import type { ExecutionDescription } from '../../workflows/insight/list-executions.ts'
import type { OpenWait } from '../../workflows/insight/open-work.ts'
import { dispatcherName } from '../../workflows/routes.ts'
import type { ExplainParts, Verdict } from './explain.ts'

export async function handlerVerdicts(parts: ExplainParts, event: RecordedEvent): Promise<Verdict[]> {
  const handlers = await everyItem(page => parts.workflows.handlers.list(page))
  if (handlers.length === 0) return []
  const wanting = newestOf(handlers.filter(each => each.types === undefined || each.types.includes(event.type)))
  if (wanting.length === 0) return []
  const { checkpoint } = await parts.consumers.status(dispatcherName)
  const workflow = parts.workflows.get(event.correlationId)
  const open = (await openOf(parts, event.correlationId)).filter(each => each.eventPosition === event.position)
  const { items: lines } = await workflow.activity({ limit: 1_000 })
  const waits = await workflow.waits()
  const verdicts: Verdict[] = []
  for (const handler of wanting) {
    const execution = open.find(each => each.handler === handler.handler)
    if (execution !== undefined) {
      verdicts.push(ofExecution(execution, handler, waits))
      continue
    }
    const dead = await deadLetterOf(parts, handler.handler, event.id)
    const last = lines.findLast(line => line.handler === handler.handler && line.eventPosition === event.position)
    verdicts.push(dead ?? ofEnd(handler, last?.kind, event, checkpoint))
  }
  return verdicts
}

/** Of all open executions of a workflow, and of its dead letters. */
export async function executionVerdicts(parts: ExplainParts, correlationId: string): Promise<Verdict[]> {
  const handlers = await everyItem(page => parts.workflows.handlers.list(page))
  const workflow = parts.workflows.get(correlationId)
  const waits = await workflow.waits()
  const open = await openOf(parts, correlationId)
  const verdicts = open.map(each => {
    const handler = handlers.find(({ handler, version }) => handler === each.handler && version === each.version)
    return ofExecution(each, handler, waits)
  })
  for (const join of await workflow.joins())
    verdicts.push({
      ...{ name: join.handler, kind: 'handler', state: 'waiting', reason: 'join', fix: undefined },
      message: `Its join has ${join.arrived} of ${join.size} events.`,
    })
  const { items } = await parts.deadLetters.list({ correlationId, state: 'open', limit: 100 })
  for (const each of items) {
    const name = each.handler ?? each.consumer ?? ''
    verdicts.push({
      ...{ name, kind: 'handler', state: 'blocked', reason: 'deadLetter' },
      message: `It failed for good: ${each.lastError.message}`,
      fix: `rillflow dead-letters retry ${name} ${each.eventId}`,
    })
  }
  return verdicts
}

/** At most 1000. */
async function openOf({ workflows }: ExplainParts, correlationId: string): Promise<readonly ExecutionDescription[]> {
  return (await workflows.executions.list({ correlationId, limit: 1000 })).items
}

function newestOf(handlers: readonly HandlerDescription[]): HandlerDescription[] {
  const newest = new Map<string, HandlerDescription>()
  for (const each of handlers) newest.set(each.handler, each)
  return [...newest.values()]
}

function ofExecution(
  execution: ExecutionDescription,
  handler: HandlerDescription | undefined,
  waits: readonly OpenWait[],
): Verdict {
  const { handler: name, state, executionId, dueAt, lane, worker, attempt, version } = execution
  const say = (to: Verdict['state'], reason: string, message: string, fix?: string): Verdict => ({
    ...{ name, kind: 'handler', state: to, reason, message, fix, executionId },
  })
  if (state === 'running') return say('waiting', 'running', `Attempt ${attempt} runs on worker ${worker}.`)
  if (state === 'parked')
    return say('blocked', 'parked', 'It is parked, because its code does not fit its recorded steps.')
  if (handler?.pausedAt !== undefined) return say('blocked', 'paused', 'The handler is paused.')
  if (handler?.workers === 0)
    return say('blocked', 'notRunning', `No running worker has version ${version} of its code.`, 'rillflow run')
  if (state === 'delayed' && attempt > 0)
    return say(
      'waiting',
      'retrying',
      `It has failed ${counted(attempt, 'time')} and is tried again at ${dueAt?.toISOString()}.`,
    )
  if (state === 'delayed') return say('waiting', 'delayed', `It is delayed until ${dueAt?.toISOString()}.`)
  if (state === 'suspended') return say('waiting', 'suspended', waitText(executionId, waits, dueAt))
  if (state === 'blocked' || state === 'held')
    return say('waiting', 'lane', `It waits for its turn in lane "${lane}": an earlier execution of it is not done.`)
  if (state === 'unkeyed') return say('waiting', 'unkeyed', 'Its lane is not assigned yet.')
  if (state === 'stopping') return say('waiting', 'stopping', 'Its workflow is being compensated.')
  return say(
    'waiting',
    'ready',
    'It is ready, and waits for a worker that is free, or for its rate or concurrency limit.',
  )
}

function waitText(executionId: string, waits: readonly OpenWait[], dueAt: Date | undefined): string {
  const wait = waits.find(each => each.executionId === executionId)
  const until = dueAt === undefined ? '' : `, until ${dueAt.toISOString()}`
  if (wait?.type !== undefined) return `It waits for an event ${wait.type}${until}.`
  if (wait?.child !== undefined) return `It waits for its child ${wait.child}${until}.`
  return `It sleeps${until}.`
}

async function deadLetterOf(
  { deadLetters }: ExplainParts,
  handler: string,
  eventId: string,
): Promise<Verdict | undefined> {
  const found = await deadLetters.show({ handler }, eventId).catch((error: unknown) => {
    if (isRillflowError(error, 'dead_letter_not_found')) return undefined
    throw error
  })
  if (found === undefined || found.state === 'replayed') return undefined
  return {
    ...{ name: handler, kind: 'handler', reason: 'deadLetter', executionId: found.executionId },
    state: found.state === 'resolved' ? 'done' : 'blocked',
    message: `It failed for good after ${counted(found.attempts, 'attempt')}: ${found.lastError.message}`,
    fix: found.state === 'open' ? `rillflow dead-letters retry ${handler} ${eventId}` : undefined,
  }
}

function ofEnd(
  { handler: name, retiredAt, startPosition }: HandlerDescription,
  kind: string | undefined,
  event: RecordedEvent,
  dispatched: number,
): Verdict {
  const say = (state: Verdict['state'], reason: string, message: string, fix?: string): Verdict => ({
    ...{ name, kind: 'handler', state, reason, message, fix },
  })
  if (kind === 'completed') return say('done', 'completed', 'It has run.')
  if (kind === 'skipped') return say('done', 'skipped', 'It has skipped the event.')
  if (kind === 'cancelled') return say('done', 'cancelled', 'Its workflow was cancelled.')
  if (startPosition >= event.position) return say('none', 'beganAfter', 'It is given events from later on only.')
  if (retiredAt !== undefined) return say('none', 'retired', 'It is retired and is given no more events.')
  if (dispatched < event.position)
    return say('waiting', 'dispatcherBehind', `The dispatcher is at ${dispatched}.`, 'rillflow run')
  return say('done', 'done', 'It was dispatched, and nothing of it is open. Its activity is no longer stored.')
}
