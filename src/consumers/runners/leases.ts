/**
 * The leases that one runner holds, and the code that works under them.
 *
 *     view ──► assign ──► mine and free ──► take ──► run ──► returned, failed ──► release
 *                    └──► another runner's ──► drain: running work completes ──► release
 *                    └──► the fence is another one ──► lost: cut off at once
 *
 * A holder that is stuck, because a call to the database never ends, loses its lease, and its runner does not ask for it for
 * a while, so that another runner continues.
 *
 * A lease whose runner cannot reach the database is lost, too, once it may have expired: another runner may have taken
 * it by then.
 */

import { abortable } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { runDetached } from '../../core/service.ts'
import type { Log } from '../../events/log.ts'
import type { Wake } from '../../events/order/wake.ts'
import { channels } from '../../telemetry/telemetry.ts'
import { ensureConsumer } from '../consumer.ts'
import { LeaseLost } from '../errors.ts'
import { type Lease, release, take } from '../row.ts'
import { assign } from './balance.ts'
import type { View } from './row.ts'
import type { HeldLease, Leased } from './runnable.ts'

export interface Leases {
  /** Those held now, for the heartbeat to renew. Holders that are stuck lose theirs. */
  held(): readonly { readonly lease: Lease; readonly leaseMs: number }[]
  /** Whether this runner leaves the consumer to others for now, because its holder was stuck here. */
  isLeft(name: string): boolean
  names(): string[]
  /** Makes the rows of consumers that have none; returns why a row is refused, by the name of its consumer. */
  ensure(leased: readonly Leased[]): Promise<ReadonlyMap<string, unknown>>
  /** Releases the consumers that other runners should hold, and takes ours that are free. */
  follow(view: View, leased: readonly Leased[]): Promise<void>
  /** The database could not be reached since then: loses every lease that may have expired. */
  loseExpired(lastSeenAt: number): void
  /** The runner is no longer known: everything it held belongs to others. */
  loseAll(): void
  /** Lets running work complete until `cutOff` aborts; then every lease is lost. Resolves when none is held. */
  drain(cutOff: AbortSignal): Promise<void>
}

export interface LeasesOptions {
  /** The id of the runner. */
  readonly id: string
  /** Called when the code of a consumer has failed. */
  onFailure(name: string, error: unknown): void
  /** Called when a lease was released: others may take it. */
  onReleased(): void
}

interface Running {
  readonly leased: Leased
  readonly lease: Lease
  readonly drain: AbortController
  readonly lost: AbortController
  readonly requestListeners: Set<() => void>
  readonly ended: Promise<void>
  /** When each piece of work began that must end soon, the oldest first. */
  readonly limited: ReadonlySet<{ readonly since: number }>
}

/** How long a call to the database may take before its holder counts as stuck, and how long it is then left to others. */
const maxStuckMs = ({ leaseMs }: Leased): number => Math.max(5_000, 4 * leaseMs)

/** Leases that are taken at the same time; more would only queue for connections. */
const maxTakenAtOnce = 4

export function openLeases(
  { log, wake }: { readonly log: Log; readonly wake: Wake },
  { id, onFailure, onReleased }: LeasesOptions,
): Leases {
  const running = new Map<string, Running>()
  const ensured = new Set<string>()
  /** Until when a consumer is left to others. */
  const left = new Map<string, number>()
  let isDraining = false

  return {
    held() {
      for (const each of running.values()) if (isStuck(each)) leave(each)
      const renewed = [...running.values()].filter(({ lost }) => !lost.signal.aborted)
      return renewed.map(({ lease, leased }) => ({ lease, leaseMs: leased.leaseMs }))
    },
    isLeft,
    names: () => [...running.keys()],
    async ensure(leased) {
      const refused = new Map<string, unknown>()
      for (const each of leased) {
        if (each.isMade === true || ensured.has(each.name)) continue
        try {
          await ensureConsumer(log, each)
          ensured.add(each.name)
        } catch (error) {
          // It cannot begin where it is said to: the others run all the same.
          if (!isRillflowError(error, 'invalid_option')) throw error
          refused.set(each.name, error)
        }
      }
      return refused
    },
    async follow(view, leased) {
      const mine = isDraining ? new Set<string>() : assignedTo(id, view)
      for (const each of running.values()) review(each, view, mine)
      const byName = new Map(leased.map(each => [each.name, each]))
      const free = [...mine].filter(name => !running.has(name) && !isLeft(name) && isFree(view, name))
      for (let at = 0; at < free.length; at += maxTakenAtOnce)
        await Promise.all(free.slice(at, at + maxTakenAtOnce).map(name => begin(byName.get(name)!)))
    },
    loseExpired(lastSeenAt) {
      const passedMs = elapsedMs() - lastSeenAt
      for (const each of running.values()) if (passedMs > each.leased.leaseMs) lose(each)
    },
    loseAll() {
      for (const each of running.values()) lose(each)
    },
    async drain(cutOff) {
      isDraining = true
      for (const each of running.values()) each.drain.abort()
      const cut = (): void => {
        for (const each of running.values()) lose(each)
      }
      if (cutOff.aborted) cut()
      else cutOff.addEventListener('abort', cut, { once: true })
      await Promise.all([...running.values()].map(each => each.ended))
      cutOff.removeEventListener('abort', cut)
    },
  }

  function assignedTo(runner: string, view: View): Set<string> {
    const held = new Map<string, string | undefined>()
    for (const { name, open, held: isHeld, owner } of view.consumers.values())
      if (open) held.set(name, isHeld ? (owner ?? undefined) : undefined)
    const mine = [...assign(held, view.active)].filter(([, holder]) => holder === runner)
    return new Set(mine.map(([name]) => name))
  }

  function review(each: Running, view: View, mine: ReadonlySet<string>): void {
    const seen = view.consumers.get(each.leased.name)
    if (seen !== undefined && seen.fence !== each.lease.fence.toString()) lose(each)
    else if (!mine.has(each.leased.name)) each.drain.abort()
    else if (seen?.requested === true) for (const listener of each.requestListeners) listener()
  }

  function isFree(view: View, name: string): boolean {
    const seen = view.consumers.get(name)
    return seen !== undefined && (!seen.held || seen.owner === id)
  }

  async function begin(leased: Leased): Promise<void> {
    const lease = await take(log, leased.name, id, leased.leaseMs)
    if (typeof lease === 'string') {
      // Its row was removed: it is made anew with the next look.
      if (lease === 'missing') ensured.delete(leased.name)
      return
    }
    log.telemetry.count('leases_taken_total')
    publish(leased.name, 'taken')
    const drain = new AbortController()
    const lost = new AbortController()
    const requestListeners = new Set<() => void>()
    const limited = new Set<{ readonly since: number }>()
    const held: HeldLease = {
      ...{ lease, drain: drain.signal, lost: lost.signal },
      onRequest(listener) {
        requestListeners.add(listener)
        return () => requestListeners.delete(listener)
      },
      async limited(work) {
        const begun = { since: elapsedMs() }
        limited.add(begun)
        try {
          return await abortable(work(), lost.signal)
        } finally {
          limited.delete(begun)
        }
      },
    }
    const ended = runDetached(() => runHeld(leased, held))
    running.set(leased.name, { leased, lease, drain, lost, requestListeners, ended, limited })
    if (isDraining) drain.abort()
  }

  async function runHeld(leased: Leased, held: HeldLease): Promise<void> {
    // The caller registers it first: code that returns at once must not be entered afterwards.
    await Promise.resolve()
    try {
      await leased.run(held)
    } catch (error) {
      log.telemetry.log.error({ schema: log.schema, consumer: leased.name, error }, 'A consumer has stopped.')
      onFailure(leased.name, error)
    }
    // If the database is away the lease is free when it expires.
    await release(log, [held.lease]).catch(() => {})
    running.delete(leased.name)
    publish(leased.name, 'released')
    wake.changed()
    onReleased()
  }

  function isStuck({ limited, leased }: Running): boolean {
    const [oldest] = limited
    return oldest !== undefined && elapsedMs() - oldest.since > maxStuckMs(leased)
  }

  function leave(each: Running): void {
    const { name } = each.leased
    left.set(name, elapsedMs() + maxStuckMs(each.leased))
    log.telemetry.log.warn(
      { schema: log.schema, consumer: name },
      'A consumer makes no progress, so its lease is given up.',
    )
    lose(each)
  }

  function isLeft(name: string): boolean {
    const until = left.get(name)
    if (until === undefined || elapsedMs() < until) return until !== undefined
    return !left.delete(name)
  }

  function lose({ lease: { consumer, fence }, lost }: Running): void {
    if (lost.signal.aborted) return
    log.telemetry.count('leases_lost_total')
    publish(consumer, 'lost')
    lost.abort(new LeaseLost({ consumer, fence }))
  }

  function publish(consumer: string, happened: 'taken' | 'released' | 'lost'): void {
    log.telemetry.publish(channels.lease, () => ({ schema: log.schema, consumer, owner: id, happened }))
  }
}
