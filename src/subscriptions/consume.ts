/** The two ways to take events from a subscription: an iteration, and a callback. */
import { isRillflowError } from '../core/errors.ts'
import { abortError, onAbort, once, settledWithin } from '../core/lifecycle.ts'
import { runOutside } from '../database/transaction.ts'
import { deliveriesOf, deliverTo, type OnEvent } from './deliver.ts'
import type { Delivery } from './delivery.ts'
import { followLive } from './ephemeral.ts'
import type { Plan } from './plan.ts'
import { type Runner, type SubscriptionParts, startRunner } from './runner.ts'

/** A subscription that is iterated over; each iteration is a consumer of its own. */
export interface Subscription<E> extends AsyncIterable<E>, AsyncDisposable {
  /** Ends its iterations and gives their leases back. May be called again. */
  stop(): Promise<void>
}

/** A subscription whose events go to a callback. */
export interface RunningSubscription extends AsyncDisposable {
  /** Lets running calls end, for a while, and gives the leases back. May be called again. */
  stop(): Promise<void>
  /** Resolves when it was stopped, rejects when it has failed. */
  readonly ended: Promise<void>
}

/** Those at work in one store, so that closing it stops them. */
export type AtWork = Set<() => Promise<void>>

export function iterate(
  parts: SubscriptionParts,
  plan: Plan,
  atWork: AtWork,
  signal: AbortSignal | undefined,
): Subscription<Delivery> {
  const own: AtWork = new Set()
  const stop = async (): Promise<void> => {
    await Promise.all([...own].map(each => each()))
  }
  return {
    [Symbol.asyncIterator]() {
      const iteration = plan.durable ? iterateStored(parts, plan, signal) : iterateLive(parts, plan, signal)
      const deliveries = deliveriesOf(parts, plan)
      const end = once(async () => {
        deliveries.comeBack()
        await iteration.stop()
        own.delete(end)
        atWork.delete(end)
      })
      own.add(end)
      atWork.add(end)
      const next = async (): Promise<IteratorResult<Delivery>> => {
        deliveries.comeBack()
        const result = await iteration.next().catch(async error => {
          await end()
          throw error
        })
        if (result.done === true) await end()
        else deliveries.handOver(result.value)
        return result
      }
      return {
        next,
        async return() {
          await end()
          return { done: true, value: undefined }
        },
      }
    },
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

interface Iteration {
  next(): Promise<IteratorResult<Delivery>>
  stop(): Promise<void>
}

function iterateStored(parts: SubscriptionParts, plan: Plan, signal: AbortSignal | undefined): Iteration {
  let runner: Runner | undefined
  let isStopped = false
  let release = (): void => {}
  const unsettled: Delivery[] = []
  return {
    async next() {
      if (signal?.aborted) throw abortError(signal)
      if (isStopped) return { done: true, value: undefined }
      if (runner === undefined) {
        parts.log.database.refuseInsideTransaction('subscribe')
        runner = startRunner(parts, plan)
        if (signal !== undefined) release = onAbort(signal, () => runner!.quiet())
      }
      // The consumer has come back, so it is done with what it had. If that cannot be stored, it is delivered again.
      for (const done of unsettled.splice(0)) void done.ack().catch(() => {})
      const delivery = await runner.pull({ alone: false })
      if (signal?.aborted) throw abortError(signal)
      if (delivery === undefined) return { done: true, value: undefined }
      if (plan.ack === 'auto') unsettled.push(delivery)
      return { done: false, value: delivery }
    },
    async stop() {
      isStopped = true
      release()
      await runner?.stop()
    },
  }
}

function iterateLive(parts: SubscriptionParts, plan: Plan, signal: AbortSignal | undefined): Iteration {
  const stopping = new AbortController()
  const release = signal === undefined ? () => {} : onAbort(signal, () => stopping.abort(signal.reason))
  const live = followLive(parts, plan, stopping.signal)
  return {
    async next() {
      try {
        return await live.next()
      } catch (error) {
        if (signal?.aborted !== true && stopping.signal.aborted) return { done: true, value: undefined }
        throw error
      }
    },
    async stop() {
      release()
      stopping.abort()
    },
  }
}

export interface CallbackPlan {
  readonly onEvent: OnEvent
  readonly concurrency: number
  readonly signal: AbortSignal | undefined
}

export function callBack(
  parts: SubscriptionParts,
  plan: Plan,
  atWork: AtWork,
  { onEvent, concurrency, signal }: CallbackPlan,
): RunningSubscription {
  const source = plan.durable ? storedSource(parts, plan, concurrency) : liveSource(parts, plan)
  const stop = once(async () => {
    source.quiet()
    await settledWithin(loops, plan.drainMs)
    await source.stop()
    atWork.delete(stop)
    release()
  })
  const work = async (): Promise<void> => {
    for (;;) {
      const delivery = await source.pull()
      if (delivery === undefined) return
      await deliverTo(parts, plan, delivery, onEvent, told => handle(plan, delivery, told))
    }
  }
  const loops: Promise<unknown> = runOutside(() =>
    Promise.all(Array.from({ length: plan.durable ? concurrency : 1 }, work)),
  )
  const release = signal === undefined ? () => {} : onAbort(signal, () => void runOutside(stop).catch(() => {}))
  const ended = loops.then(
    () => stop(),
    async error => {
      await stop()
      throw error
    },
  )
  // Who does not look at it is not to be ended by it.
  ended.catch(error => parts.log.telemetry.log.error({ subscription: plan.name, error }, 'a subscription has stopped'))
  atWork.add(stop)
  return { stop: () => runOutside(stop), ended, [Symbol.asyncDispose]: () => runOutside(stop) }
}

async function handle(plan: Plan, delivery: Delivery, onEvent: OnEvent): Promise<void> {
  try {
    await onEvent(delivery)
  } catch (reason) {
    // Without a checkpoint there is nothing to go back to.
    if (!plan.durable) throw reason
    return settled(delivery.nack({ reason }))
  }
  // Not waited for, so that many are stored together; if it cannot be, the event is delivered again.
  if (plan.ack === 'auto') void delivery.ack().catch(() => {})
}

/** A lost lease is no matter of this loop: the event goes to somebody else. What was settled by the callback stands. */
async function settled(settling: Promise<void>): Promise<void> {
  await settling.catch(error => {
    if (!isRillflowError(error, 'lease_lost') && !isRillflowError(error, 'already_settled')) throw error
  })
}

interface Source {
  pull(): Promise<Delivery | undefined>
  quiet(): void
  stop(): Promise<void>
}

function storedSource(parts: SubscriptionParts, plan: Plan, concurrency: number): Source {
  const runner = startRunner(parts, plan)
  return { pull: () => runner.pull({ alone: concurrency > 1 }), quiet: runner.quiet, stop: runner.stop }
}

function liveSource(parts: SubscriptionParts, plan: Plan): Source {
  const live = iterateLive(parts, plan, undefined)
  return {
    async pull() {
      const next = await live.next()
      return next.done === true ? undefined : next.value
    },
    quiet: () => void live.stop(),
    stop: () => live.stop(),
  }
}
