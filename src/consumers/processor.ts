/**
 * The continuous processor: a consumer that its own program runs, from its checkpoint on, until it is told to stop or
 * its policy stops it. No daemon takes it; the same name in another process waits, and takes over.
 *
 *     ready ──run──► running ──shutdown, or the signal──► stopping ──► stopped
 *                       └──the policy says stop──────────► stopping ──► failed     run rejects with the error
 */
import { InvalidOption } from '../core/errors.ts'
import { deferred, onAbort, once } from '../core/lifecycle.ts'
import { runOutside } from '../database/transaction.ts'
import type { EventMap } from '../events/definition.ts'
import { settle } from '../events/order/order.ts'
import { watchLog } from '../events/order/watch.ts'
import { type Consumer, type ConsumerOptions, consumer } from './consumer.ts'
import type { Consumers } from './consumers.ts'
import { handlersOf, type ProcessorHandlers } from './processor-handlers.ts'
import { follow } from './run/follow.ts'
import { failFast } from './run/policy.ts'
import { type Tick, tickOnce } from './run/run.ts'
import { type Hosted, openHost } from './runners/host.ts'
import { readStatus } from './status.ts'

export interface ProcessorOptions<M extends EventMap> extends ProcessorHandlers<M>, ConsumerOptions {
  /** How often it looks for events without a hint. Default 100. */
  pollMs?: number | undefined
}

export type ProcessorState = 'ready' | 'running' | 'stopping' | 'stopped' | 'failed'

export interface Processor extends AsyncDisposable {
  readonly name: string
  readonly state: ProcessorState
  /**
   * Resolves when it was told to stop, by `shutdown` or the signal; rejects with the error its policy stopped it for. Then it
   * may be called again, unless it was shut down.
   */
  run(signal?: AbortSignal): Promise<void>
  /** One batch, without `run`; rejects with the error if the policy says stop. */
  runOnce(): Promise<Tick>
  /** The last position it is done with; undefined before the first. */
  checkpoint(): Promise<number | undefined>
  /** Positions between the checkpoint and the end of the log. */
  lag(): Promise<number>
  /** Lets the batch under way end, and gives the name free. May be called again. */
  shutdown(): Promise<void>
}

/** The processors of one store, so that closing it stops them. */
export interface ProcessorRegistry {
  processor<M extends EventMap>(name: string, options: ProcessorOptions<M>): Processor
  stopAll(): Promise<void>
}

export function openProcessors(consumers: Consumers): ProcessorRegistry {
  const open = new Set<Processor>()
  return {
    processor(name, options) {
      const processor = openProcessor(consumers, name, options, () => open.delete(processor))
      open.add(processor)
      return processor
    },
    async stopAll() {
      await Promise.all([...open].map(processor => processor.shutdown()))
    },
  }
}

function openProcessor<M extends EventMap>(
  consumers: Consumers,
  name: string,
  options: ProcessorOptions<M>,
  onShutdown: () => void,
): Processor {
  const { pollMs = 100 } = options
  const built = build(name, options)
  if (!(Number.isSafeInteger(pollMs) && pollMs >= 1))
    throw new InvalidOption({ option: 'pollMs', reason: `must be a whole number from 1, not ${String(pollMs)}` })
  const unregister = consumers.register(built)
  const { log } = consumers
  let state: ProcessorState = 'ready'
  let running: Promise<void> | undefined
  let ask = (): void => {}
  let isShut = false

  const runUntilAsked = async (asked: Promise<void>): Promise<void> => {
    const failed = deferred<void>()
    let failure: { readonly error: unknown } | undefined
    let isOver = false
    const parts = { ...consumers, watch: watchLog(log, consumers.wake, pollMs) }
    // A look that was under way when it failed may take it once more.
    const hosted: Hosted = { ...built, run: async hold => (isOver ? undefined : follow(parts, built, hold)) }
    const host = openHost(consumers, {
      // Once it is over nothing is taken again.
      hosted: () => (isOver ? [] : [hosted]),
      leaseMs: built.leaseMs,
      onFailure(_, error) {
        isOver = true
        failure ??= { error }
        failed.resolve()
      },
    })
    try {
      await Promise.race([host.start(), asked])
      await Promise.race([asked, failed.promise])
    } finally {
      isOver = true
      state = 'stopping'
      await host.stop()
    }
    if (failure !== undefined) throw failure.error
  }

  const run = async (signal: AbortSignal | undefined): Promise<void> => {
    const asked = deferred<void>()
    ask = asked.resolve
    const release = signal && onAbort(signal, asked.resolve)
    state = 'running'
    try {
      await runUntilAsked(asked.promise)
      state = 'stopped'
    } catch (error) {
      state = 'failed'
      throw error
    } finally {
      release?.()
      running = undefined
    }
  }

  const shutdown = once(async () => {
    isShut = true
    ask()
    await running?.catch(() => {})
    if (state === 'ready') state = 'stopped'
    unregister()
    onShutdown()
  })

  const refuseShut = (): void => {
    if (isShut) throw new InvalidOption({ option: 'processor', reason: `"${name}" was shut down; make a new one` })
  }

  return {
    name,
    get state() {
      return state
    },
    async run(signal) {
      refuseShut()
      if (running !== undefined)
        throw new InvalidOption({ option: 'processor', reason: `"${name}" is running already` })
      running = runOutside(() => run(signal))
      return running
    },
    async runOnce() {
      refuseShut()
      const tick = await tickOnce(consumers, built)
      if (tick.result === 'stopped') throw tick.error
      return tick
    },
    async checkpoint() {
      const [status] = await readStatus(log, { names: [name] })
      return status === undefined || status.checkpoint === 0 ? undefined : status.checkpoint
    },
    async lag() {
      const [status] = await readStatus(log, { names: [name] })
      return status === undefined ? (await settle(log)).settled : status.lag
    },
    shutdown,
    [Symbol.asyncDispose]: shutdown,
  }
}

/** Refuses what could only fail later. */
function build<M extends EventMap>(name: string, options: ProcessorOptions<M>): Consumer {
  const { batchSize = 100, policy = failFast() } = options
  const handlers = handlersOf(name, options)
  return consumer({ name, kind: 'processor', ...handlers }, { ...options, batchSize, policy })
}
