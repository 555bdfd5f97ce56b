/**
 * A daemon runs the consumers registered in its store, and shares them with daemons elsewhere.
 *
 *     await using daemon = store.daemon()
 *     await daemon.start()
 */

import { InvalidOption } from '../../core/errors.ts'
import { onAbort } from '../../core/lifecycle.ts'
import { checkName } from '../../core/name.ts'
import { nearestName } from '../../core/nearest.ts'
import type { Consumer } from '../consumer.ts'
import type { Consumers } from '../consumers.ts'
import { ConsumerNotFound } from '../errors.ts'
import { follow } from '../run/follow.ts'
import { type Host, type Hosted, openHost } from './host.ts'
import type { Role } from './members.ts'

export interface DaemonOptions {
  /** Which of the registered consumers to run. Default 'all', also those registered later. */
  consumers?: 'all' | readonly string[] | undefined
  /** A name that stays the same when the daemon is started again; another daemon with it is replaced. */
  node?: string | undefined
  /** Take nothing while a daemon with a node name is running things. Default false. */
  standby?: boolean | undefined
  /** How long leases last without being renewed; default: what each consumer says, 30 000. */
  leaseMs?: number | undefined
  /** Told when a consumer's policy has stopped it. */
  onFailure?: ((consumer: string, error: unknown) => void) | undefined
}

export interface Daemon extends AsyncDisposable {
  /** Resolves when it has taken what is free. May be called again after a stop. */
  start(): Promise<void>
  /** Lets batches under way end, up to `stopMs` (default 5000), and gives back its leases at once. */
  stop(options?: { stopMs?: number | undefined }): Promise<void>
  readonly isRunning: boolean
  /** Undefined while it is not running. */
  readonly role: Role | undefined
  /** The consumers it holds now. */
  holds(): string[]
}

/** Daemons of one store, so that closing it stops them. */
export interface DaemonRegistry {
  daemon(options?: DaemonOptions): Daemon
  stopAll(): Promise<void>
  /** Runs these until the signal aborts. */
  runUntil(consumers: readonly string[], signal: AbortSignal): Promise<void>
}

/** `tend` is called when a daemon has started, the function it returns when that one stops: for what any of them keeps up. */
export function openDaemons(consumers: Consumers, tend: () => () => void = () => () => {}): DaemonRegistry {
  const running = new Set<() => Promise<void>>()
  return {
    daemon: (options = {}) => openDaemon(consumers, options, running, tend),
    async runUntil(names, signal) {
      if (signal.aborted) return
      const daemon = openDaemon(consumers, { consumers: names }, running, tend)
      await daemon.start()
      await new Promise<void>(resolve => onAbort(signal, resolve))
      await daemon.stop()
    },
    async stopAll() {
      await Promise.all([...running].map(stop => stop()))
    },
  }
}

function openDaemon(
  consumers: Consumers,
  options: DaemonOptions,
  running: Set<() => Promise<void>>,
  tend: () => () => void,
): Daemon {
  const { consumers: wanted = 'all', node, standby = false, leaseMs, onFailure } = options
  if (node !== undefined) checkName('Node', node)
  if (standby && node === undefined) throw new InvalidOption({ option: 'standby', reason: 'needs a node name' })
  if (leaseMs !== undefined && !(Number.isSafeInteger(leaseMs) && leaseMs >= 50))
    throw new InvalidOption({ option: 'leaseMs', reason: `must be a whole number from 50, not ${String(leaseMs)}` })
  if (wanted !== 'all' && !Array.isArray(wanted))
    throw new InvalidOption({ option: 'consumers', reason: `must be 'all' or a list of names` })
  const hostedByConsumer = new WeakMap<Consumer, Hosted>()
  let host: Host | undefined
  let stopListening = (): void => {}
  let rest = (): void => {}

  const hosted = (): Hosted[] =>
    consumers
      .list()
      .filter(each => each.kind !== 'processor' && (wanted === 'all' || wanted.includes(each.name)))
      .map(each => {
        const known = hostedByConsumer.get(each) ?? hostedOf(consumers, each, leaseMs)
        hostedByConsumer.set(each, known)
        return known
      })

  const stop = async ({ stopMs }: { stopMs?: number | undefined } = {}): Promise<void> => {
    const stopped = host
    rest()
    stopListening()
    await stopped?.stop(stopMs)
    if (host === stopped) host = undefined
    running.delete(stop)
  }

  return {
    async start() {
      if (host !== undefined) return
      if (wanted !== 'all')
        for (const name of wanted)
          if (consumers.get(name) === undefined)
            throw new ConsumerNotFound({
              consumer: name,
              nearest: nearestName(
                name,
                consumers.list().map(each => each.name),
              ),
            })
      const onReplaced = (): void => void stop()
      const mine = openHost(consumers, { hosted, node, standby, leaseMs, onFailure, onReplaced })
      host = mine
      running.add(stop)
      stopListening = consumers.onChange(() => mine.refresh())
      try {
        await mine.start()
        if (host === mine) rest = tend()
      } catch (error) {
        await stop()
        throw error
      }
    },
    stop,
    get isRunning() {
      return host !== undefined
    },
    get role() {
      return host?.role()
    },
    holds: () => host?.holds() ?? [],
    [Symbol.asyncDispose]: () => stop(),
  }
}

function hostedOf(consumers: Consumers, consumer: Consumer, leaseMs: number | undefined): Hosted {
  const { name, kind, startFrom } = consumer
  const leased = leaseMs === undefined ? consumer : { ...consumer, leaseMs }
  return { name, kind, startFrom, leaseMs: leased.leaseMs, run: hold => follow(consumers, leased, hold) }
}
