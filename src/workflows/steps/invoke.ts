/**
 * Calling a handler: until it returns or fails, its time is over, it is taken away, or it waits. What has not come back in time
 * is left to itself, and nothing it still does counts.
 */
import { describeError } from '../../consumers/run/failure.ts'
import { Cutoff } from '../../core/cutoff.ts'
import type { EventMap } from '../../events/definition.ts'
import type { DispatchParts } from '../dispatch/dispatch.ts'
import { DeadlinePassed, ExecutionTimeout } from '../errors.ts'
import type { Handler } from '../handler.ts'
import type { Claimed } from '../work/claim.ts'
import { byExpiry } from '../work/deadline.ts'
import type { Outcome } from '../work/outcome.ts'
import { type Attempt, openAttempt } from './attempt.ts'
import { type HandlerContext, handlerContext } from './context.ts'
import { loadCalls, mayRemember } from './remember.ts'
import { suspended } from './suspend.ts'

export interface Invocation {
  readonly parts: DispatchParts
  execution: Claimed
  readonly handler: Handler
  /** Cut when the worker has to stop at once, or the execution is not ours any more. */
  readonly over: Cutoff
  /** How long without a sign of life until others take over. */
  readonly leaseMs: number
  /** When the time of the execution is over, by `performance.now()`; undefined if it has no deadline. */
  readonly expiresAt: number | undefined
  /** Is given the code that was still at work when it was not waited for any longer. */
  readonly leave: (running: Promise<unknown>) => void
  /** Whether it may have left steps behind. */
  hasSteps: boolean
}

/** Early: it waits, or its code is not what it was. */
export type Invoked = { readonly result: unknown } | { readonly early: EarlyOutcome }

export type EarlyOutcome = Pick<Outcome, 'kind' | 'told' | 'detail' | 'delayMs' | 'error' | 'inside'>

/** `input` is what the handler is for: its event, as a rule. */
export async function invoke(invocation: Invocation, input: unknown): Promise<Invoked> {
  const { parts, execution, handler, over, leaseMs, leave } = invocation
  const recorded = mayRemember(execution) ? await loadCalls(parts.log, execution) : []
  const cutoff = new Cutoff()
  const { limitMs, late } = limitOf(invocation)
  const timer = parts.log.clock.setTimeout(() => cutoff.cut(late()), limitMs)
  over.onCut(() => cutoff.cut(over.reason))
  let attempt: Attempt | undefined
  let running: Promise<Invoked> | undefined
  let isOver = false
  try {
    return await new Promise<Invoked>((resolve, reject) => {
      cutoff.onCut(() => reject(cutoff.reason))
      // A handler that never asks its context for anything needs no memory.
      const open = (): Attempt => {
        if (attempt !== undefined) return attempt
        attempt = openAttempt({ ...parts, execution, handler, leaseMs, signal: cutoff.signal }, recorded)
        if (isOver) attempt.close()
        early(attempt).then(resolve, (error: unknown) => cutoff.cut(error))
        return attempt
      }
      if (cutoff.isCut) return
      if (recorded.length > 0) open()
      running = call(handler, input, handlerContext({ execution, handler, cutoff, open, opened: () => attempt }), () =>
        attempt?.settle(),
      )
      running.then(resolve, reject)
    })
  } catch (error) {
    if (!cutoff.isCut) throw error
    // A step that the handler has not waited for may still be at work when it returns.
    if (running !== undefined) leave(running.finally(() => attempt?.settle()))
    throw cutoff.reason
  } finally {
    isOver = true
    attempt?.close()
    if (attempt?.hasSteps) invocation.hasSteps = true
    timer.cancel()
  }
}

/** Its own time, or that of the whole execution, whichever ends first. */
function limitOf({ execution, handler, expiresAt }: Invocation): { limitMs: number; late: () => Error } {
  const { name, timeoutMs, deadlineMs = 0 } = handler
  const limitMs = Math.max(1, timeoutMs - execution.ranMs)
  const leftMs = Math.max(1, byExpiry(Number.POSITIVE_INFINITY, expiresAt))
  if (leftMs < limitMs) return { limitMs: leftMs, late: () => new DeadlinePassed({ handler: name, deadlineMs }) }
  return { limitMs, late: () => new ExecutionTimeout({ handler: name, timeoutMs }) }
}

async function call(
  handler: Handler,
  input: unknown,
  context: HandlerContext<EventMap>,
  settle: () => Promise<void> | undefined,
): Promise<Invoked> {
  try {
    return { result: await handler.run(input, context as never) }
  } catch (error) {
    // What its steps still come to is worth knowing to the next attempt.
    await settle()
    throw error
  }
}

async function early(attempt: Attempt): Promise<Invoked> {
  const { log, handler, execution } = attempt
  const end = await attempt.over
  if (end.kind === 'suspended') return { early: suspended(attempt) }
  const { error } = end
  log.telemetry.log.warn(
    { schema: log.schema, handler: handler.name, executionId: execution.id, error },
    'an execution is parked',
  )
  return { early: { kind: 'park', told: 'parked', detail: error.code, error: describeError(error) } }
}
