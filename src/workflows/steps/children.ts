/**
 * Child workflows: an event published into a workflow of its own, once per call, together with the record of the call. Its
 * header tells whose child it is, so that a cancellation reaches it.
 */

import { derivedId } from '../../core/derived-id.ts'
import { InvalidOption } from '../../core/errors.ts'
import { checkName } from '../../core/name.ts'
import { appendIn, prepareAppend } from '../../events/append/append.ts'
import type { Append } from '../../events/append/send.ts'
import { contextOf } from '../../telemetry/span.ts'
import { envelopeOf, headerOf } from '../envelope.ts'
import { EventGone, HopsExceeded } from '../errors.ts'
import type { WorkflowStatus } from '../status.ts'
import { streamOf } from '../stream.ts'
import type { Attempt } from './attempt.ts'
import type { Call, End } from './replay.ts'

export interface StartOptions {
  /** What makes its ids, with the execution; default: the type, numbered. */
  key?: string | undefined
  /** The workflow to begin. Default: a new one, called by an id made of the execution and the key. */
  correlationId?: string | undefined
}

/** A workflow that was started by another one. */
export interface Child {
  readonly correlationId: string
  /** Waits, without holding a worker, until nothing more will happen in it by itself: also if something of it has failed. */
  settled(): Promise<ChildStatus>
}

/** How a child was when it had settled. */
export type ChildStatus = Pick<WorkflowStatus, 'correlationId' | 'state' | 'deadLetters' | 'lastType' | 'reason'>

export async function startChild(
  attempt: Attempt,
  type: string,
  data: unknown,
  { key, correlationId: given }: StartOptions = {},
): Promise<Child> {
  const { execution } = attempt
  if (given !== undefined) checkName('Correlation id', given)
  if (given === execution.correlationId)
    throw new InvalidOption({ option: 'correlationId', reason: 'is that of this workflow: emit the event instead' })
  const { correlationId } = await attempt.call<{ correlationId: string }>('start', key ?? type, call =>
    attempt.work(call, async () => {
      const { append, id } = await firstEvent(attempt, call, type, data, given)
      const end = startedEnd(attempt, id)
      await attempt.record(call, end, tx => appendIn(attempt, append, tx))
      return end
    }),
  )
  return { correlationId, settled: () => settledChild(attempt, correlationId) }
}

function settledChild(attempt: Attempt, correlationId: string): Promise<ChildStatus> {
  const settled = attempt.call<ChildStatus>('child', correlationId, call =>
    attempt.wait(call, { child: correlationId }),
  )
  settled.catch(() => {})
  return settled
}

function startedEnd({ replay }: Attempt, correlationId: string): End {
  const value = { correlationId }
  return { state: 'done', value, result: JSON.stringify(value), at: replay.timeNow() }
}

async function firstEvent(
  { log, limits, execution, handler }: Attempt,
  { name }: Call,
  type: string,
  data: unknown,
  given: string | undefined,
): Promise<{ append: Append; id: string }> {
  const { event } = execution
  if (event === undefined) throw new EventGone({ position: execution.position })
  const hops = envelopeOf(event).hops + 1
  if (hops > limits.maxHops) throw new HopsExceeded({ handler: handler.name, hops, maxHops: limits.maxHops })
  const correlationId = given ?? derivedId(event.createdAt, execution.id, 'child', name)
  const first = {
    ...{ type, data, correlationId, causationId: event.id, userId: event.userId },
    id: derivedId(event.createdAt, execution.id, 'start', name),
    headers: {
      ...contextOf(event.headers),
      ...headerOf({ hops, handler: handler.name, parent: execution.correlationId }),
    },
  }
  const streams = [{ stream: streamOf(correlationId), events: [first] }]
  // An attempt that was lost in the middle of it, or a dead letter that is retried, may have started it before.
  const append = await prepareAppend(log, streams, {}, { checkIds: true })
  return { append, id: correlationId }
}
