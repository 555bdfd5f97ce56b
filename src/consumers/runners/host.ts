/**
 * A host runs consumers under leases, and shares them with all other hosts of the log.
 *
 *     every third of a lease, and when something has changed:
 *     look: sign of life, renewal, what is held by whom ──► assign ──► give back what others should have
 *                                                                └──► take what is ours and free ──► run
 *
 * The hosts talk through rows only. A hint makes the next look come at once; without it, it comes in time.
 */

import { once } from '../../core/lifecycle.ts'
import { openLoop } from '../../core/loop.ts'
import { retry } from '../../core/retry.ts'
import { runOutside } from '../../database/transaction.ts'
import type { Log } from '../../events/log.ts'
import type { Wake } from '../../events/order/wake.ts'
import { channels } from '../../telemetry/telemetry.ts'
import type { ConsumerKind, StartFrom } from '../consumer.ts'
import { ensureConsumer } from '../consumer.ts'
import { LeaseLost } from '../errors.ts'
import { type Lease, newOwner, release, take as takeLease } from '../row.ts'
import { assign } from './balance.ts'
import { join, leave, look, type Role, stepUp, type View } from './members.ts'

/** What a host can run: it knows nothing of it but its name and how to begin. */
export interface Hosted {
  readonly name: string
  readonly kind: ConsumerKind
  readonly startFrom: StartFrom
  readonly leaseMs: number
  /** What is stored with a new row. */
  readonly definition?: object | undefined
  /** Its row is made, and removed, by somebody else: one that is gone stays away. */
  readonly isMade?: boolean | undefined
  /** Works under the lease; returns soon after `drain` aborts, at once after `lost` does. If it returns, it is run again. */
  run(hold: Hold): Promise<void>
}

/** A lease that a host keeps renewed while `run` works under it. */
export interface Hold {
  readonly lease: Lease
  /** Aborts when the lease is to be given back: finish what is under way, then return. */
  readonly drain: AbortSignal
  /** Aborts when the lease is lost: nothing may be done any more. */
  readonly lost: AbortSignal
  /** Calls back when a dead letter of this consumer is to be tried again; the function returned ends that. */
  onRequest(hear: () => void): () => void
}

export interface HostOptions {
  /** Those to run, as of now; asked with every look. */
  readonly hosted: () => readonly Hosted[]
  readonly node?: string | undefined
  readonly standby?: boolean | undefined
  /** How long this host counts as alive without a sign of life, if no lease is shorter. Default 30 000. */
  readonly leaseMs?: number | undefined
  /** Told when the run of a consumer rejects. */
  readonly onFailure?: ((name: string, error: unknown) => void) | undefined
  /** Told when another host has taken this one's node name: it is stopped then. */
  readonly onReplaced?: (() => void) | undefined
}

export interface Host {
  readonly owner: string
  /** Resolves after the first look: what is free by then is taken. */
  start(): Promise<void>
  /** Lets batches under way end, up to `stopMs`, then cuts them off; gives back all leases. May be called again. */
  stop(stopMs?: number): Promise<void>
  /** Look again soon: something was registered or removed. */
  refresh(): void
  role(): Role | undefined
  /** The consumers held now. */
  holds(): string[]
}

interface Running {
  readonly hosted: Hosted
  readonly lease: Lease
  readonly drain: AbortController
  readonly lost: AbortController
  readonly hearers: Set<() => void>
  readonly ended: Promise<void>
}

const lookBackoff = { baseMs: 50, factor: 2, maxMs: 5_000, jitter: 0.5 }
/** Leases taken at the same time; more would only queue for connections. */
const takenAtOnce = 4

export function openHost(parts: { readonly log: Log; readonly wake: Wake }, options: HostOptions): Host {
  const { log, wake } = parts
  const owner = newOwner(log)
  const running = new Map<string, Running>()
  const known = new Set<string>()
  const stopping = new AbortController()
  const loop = openLoop({
    look: round,
    pollMs: () => leaseMs() / 3,
    jitter: 0.1,
    backoff: lookBackoff,
    clock: log.clock,
    onFailure,
  })
  let role: Role | undefined
  let joining: Promise<void> | undefined
  let lookedAt = performance.now()
  let stopListening: (() => void) | undefined

  const leaseMs = (): number => Math.min(options.leaseMs ?? 30_000, ...options.hosted().map(hosted => hosted.leaseMs))

  return {
    owner,
    async start() {
      joining = join(log, { owner, node: options.node, standby: options.standby ?? false, leaseMs: leaseMs() })
      await joining
      if (stopping.signal.aborted) return
      stopListening = wake.onChange(loop.lookSoon)
      const again = { retries: Number.POSITIVE_INFINITY, backoff: lookBackoff, signal: stopping.signal }
      await retry(() => loop.lookNow(), again).catch((error: unknown) => {
        if (!stopping.signal.aborted) throw error
      })
      wake.changed()
    },
    stop: stopOnce(),
    refresh: loop.lookSoon,
    role: () => role,
    holds: () => [...running.keys()],
  }

  function stopOnce(): Host['stop'] {
    let limitMs = 5_000
    const stop = once(async () => {
      stopping.abort()
      // One that is stopped while it enters must not be left behind as if it were there.
      await joining?.catch(() => {})
      stopListening?.()
      await loop.stop()
      const all = [...running.values()]
      for (const each of all) each.drain.abort()
      const cut = setTimeout(() => {
        for (const each of all) loseIt(each)
      }, limitMs)
      await Promise.all(all.map(each => each.ended))
      clearTimeout(cut)
      // A database that is away frees them when they expire.
      await release(
        log,
        all.map(each => each.lease),
      ).catch(() => {})
      await leave(log, owner).catch(() => {})
      running.clear()
      wake.changed()
    })
    return stopMs => {
      if (stopMs !== undefined) limitMs = stopMs
      return runOutside(stop)
    }
  }

  function onFailure(error: unknown): void {
    log.telemetry.log.warn({ schema: log.schema, owner, error }, 'a daemon could not look after its leases')
    for (const each of running.values()) if (performance.now() - lookedAt > each.hosted.leaseMs) loseIt(each)
  }

  async function round(): Promise<number | undefined> {
    if (stopping.signal.aborted) return undefined
    const started = performance.now()
    let nextInMs: number | undefined
    const hosted = new Map(options.hosted().map(each => [each.name, each]))
    for (const each of hosted.values()) {
      if (each.isMade === true || known.has(each.name)) continue
      await ensureConsumer(log, each, each.definition)
      known.add(each.name)
    }
    const leases = [...running.values()].map(each => ({ lease: each.lease, leaseMs: each.hosted.leaseMs }))
    const view = await look(log, owner, [...hosted.keys()], leases)
    role = view.role
    if (view.role === undefined) return replaced()
    if (view.isNext && (await stepUp(log, owner))) nextInMs = 0
    const mine = new Set<string>()
    const held = new Map<string, string | undefined>()
    for (const each of view.consumers.values())
      if (each.open) held.set(each.name, each.held ? (each.owner ?? undefined) : undefined)
    for (const [name, holder] of assign(held, view.members)) if (holder === owner) mine.add(name)
    for (const each of running.values()) review(each, view, mine)
    const wanted = [...mine].filter(name => !running.has(name) && isFree(view, name))
    for (let at = 0; at < wanted.length; at += takenAtOnce)
      await Promise.all(wanted.slice(at, at + takenAtOnce).map(name => take(hosted.get(name)!)))
    lookedAt = started
    return nextInMs
  }

  /** What became of a consumer that runs here. */
  function review(each: Running, view: View, mine: ReadonlySet<string>): void {
    const seen = view.consumers.get(each.hosted.name)
    if (seen !== undefined && seen.fence !== each.lease.fence.toString()) loseIt(each)
    else if (!mine.has(each.hosted.name)) each.drain.abort()
    else if (seen?.requested === true) for (const hear of each.hearers) hear()
  }

  function isFree(view: View, name: string): boolean {
    const seen = view.consumers.get(name)
    return seen !== undefined && (!seen.held || seen.owner === owner)
  }

  async function take(hosted: Hosted): Promise<void> {
    const lease = await takeLease(log, hosted.name, owner, hosted.leaseMs)
    if (typeof lease === 'string') {
      if (lease === 'missing') known.delete(hosted.name)
      return
    }
    log.telemetry.count('leases_taken_total')
    tell(hosted.name, 'taken')
    const drain = new AbortController()
    const lost = new AbortController()
    const hearers = new Set<() => void>()
    const hold: Hold = {
      lease,
      drain: drain.signal,
      lost: lost.signal,
      onRequest(hear) {
        hearers.add(hear)
        return () => hearers.delete(hear)
      },
    }
    const ended = runOutside(() => runHeld(hosted, hold))
    running.set(hosted.name, { hosted, lease, drain, lost, hearers, ended })
  }

  async function runHeld(hosted: Hosted, hold: Hold): Promise<void> {
    // The caller registers it first: what ends at once must not be entered afterwards.
    await Promise.resolve()
    try {
      await hosted.run(hold)
    } catch (error) {
      log.telemetry.log.error({ schema: log.schema, consumer: hosted.name, error }, 'a consumer has stopped')
      options.onFailure?.(hosted.name, error)
    }
    if (stopping.signal.aborted) return
    running.delete(hosted.name)
    await release(log, [hold.lease]).catch(() => {})
    tell(hosted.name, 'released')
    wake.changed()
    loop.lookSoon()
  }

  function loseIt(each: Running): void {
    if (each.lost.signal.aborted) return
    const { consumer, fence } = each.lease
    log.telemetry.count('leases_lost_total')
    tell(consumer, 'lost')
    each.lost.abort(new LeaseLost({ consumer, fence }))
  }

  /** Its row is gone. Without a node's name it was only away for long, and enters again. */
  async function replaced(): Promise<number | undefined> {
    for (const each of running.values()) loseIt(each)
    if (options.node === undefined) {
      await join(log, { owner, node: undefined, standby: options.standby ?? false, leaseMs: leaseMs() })
      return 0
    }
    log.telemetry.log.warn({ schema: log.schema, node: options.node }, 'another daemon has taken the name of this node')
    stopping.abort()
    queueMicrotask(() => options.onReplaced?.())
    return undefined
  }

  function tell(consumer: string, happened: 'taken' | 'released' | 'lost'): void {
    log.telemetry.publish(channels.lease, () => ({ schema: log.schema, consumer, owner, happened }))
  }
}
