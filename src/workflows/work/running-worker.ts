/**
 * A worker runs handlers: it takes what is ready for the handlers this process has, as much at once as it may, and sees to
 * what is due. It also offers to be the dispatcher; one process at a time is.
 *
 *     tick ─► due, dead workers, … ┐
 *     hint ─► claim ─► run ─► finish ─► claim …        un-started work is given back when it stops
 */
import type { Consumers } from '../../consumers/consumers.ts'
import { newOwner } from '../../consumers/row.ts'
import { follow } from '../../consumers/run/follow.ts'
import { type Host, openHost } from '../../consumers/runners/host.ts'
import { Cutoff } from '../../core/cutoff.ts'
import { isRillflowError } from '../../core/errors.ts'
import { once, settledWithin } from '../../core/lifecycle.ts'
import { openLoop } from '../../core/loop.ts'
import { runOutside } from '../../database/transaction.ts'
import { confirmStopped, type Stopping } from '../cancel/compensate.ts'
import type { DispatchParts } from '../dispatch/dispatch.ts'
import type { Offer } from '../dispatch/takers.ts'
import { ExecutionLost } from '../errors.ts'
import type { Handler } from '../handler.ts'
import { dispatcherName } from '../routes.ts'
import { attemptsAtWork } from './at-work.ts'
import { refusedOutcome, runExecution } from './attempt.ts'
import { type Claimed, claim, groupsOf } from './claim.ts'
import { type Finished, type Finisher, openFinisher } from './complete.ts'
import { drawFences } from './fences.ts'
import { countInterruptions } from './interruptions.ts'
import type { Outcome } from './outcome.ts'
import { enterWorker, leaveWorker, releaseForgotten } from './rescue.ts'
import type { Seats } from './seats.ts'
import { type Tick, tick } from './tick.ts'
import type { Upkeep } from './upkeep.ts'
import type { WorkerOptions } from './worker.ts'

export interface WorkerParts extends DispatchParts {
  readonly consumers: Consumers
  /** Stores the routes of the handlers, and returns them by route. */
  register(names: readonly string[] | undefined): Promise<ReadonlyMap<number, Handler>>
  readonly upkeep: Upkeep
}

/** The most that are claimed beyond what can be run at once, while handlers are quick. */
const mostAhead = 500
const quickMs = 20
const laneAhead = 15
/** How long after the end of something to look whether a workflow that others wait for has settled with it. */
const childEveryMs = 20
const troubleBackoff = { baseMs: 50, factor: 2, maxMs: 5_000, jitter: 0.5 }

export interface RunningWorker {
  readonly owner: string
  start(): Promise<void>
  stop(drainMs: number): Promise<void>
}

interface Slot {
  readonly executions: readonly Claimed[]
  readonly over: Cutoff
}

export function runningWorker(parts: WorkerParts, options: WorkerOptions, seats?: Seats): RunningWorker {
  const { log, wake } = parts
  const { concurrency = 16, leaseMs = 15_000, pollMs = 2_000, node } = options
  const owner = newOwner(log)
  const nextFence = drawFences(log)
  const stopping = new AbortController()
  const lost = new AbortController()
  const slots = new Map<string, Slot>()
  const atWork = attemptsAtWork(() => {
    isTickDue = true
    wakeUp()
  })
  /** Executions whose outcome is being stored, and those of which it cannot be: these are left to their time. */
  const ending = new Set<string>()
  /** Fences of offers to the dispatcher that have not been ended: what has begun under them is not known here yet. */
  const offered = new Set<number>()
  /** How often in a row an execution was broken off because a database was away: the next try waits longer. */
  const interruptions = countInterruptions()
  let ready: Claimed[][] = []
  let handlers: ReadonlyMap<number, Handler> = new Map()
  let finisher: Finisher
  let host: Host | undefined
  const loop = openLoop({
    look: work,
    pollMs: Number.POSITIVE_INFINITY,
    backoff: troubleBackoff,
    clock: log.clock,
    onFailure(error) {
      if (isRillflowError(error, 'store_closed')) return void loop.stop()
      log.telemetry.log.warn({ schema: log.schema, owner, error }, 'a worker is held up')
      isTickDue = isHinted = true
    },
  })
  const wakeUp = loop.lookSoon
  let isHinted = true
  let isTickDue = true
  let averageMs = quickMs
  let nextTickAt = 0
  /** Whether what is dispatched may need more than a claim: it is for later, its lane is not known yet, a join has little time. */
  let isWatchful = false
  /** Whether some of what is ready may have to wait for its time. */
  let isRated = false
  /** Whether somebody waits for the end of another workflow. */
  let hasChildWaits = false
  const releases: (() => void)[] = []

  return {
    owner,
    async start() {
      handlers = await parts.register(options.handlers)
      for (const handler of new Set(handlers.values())) await handler.init?.()
      isRated = [...handlers.values()].some(({ rate }) => rate !== undefined)
      isWatchful = [...handlers.values()].some(
        ({ delayMs, keyOf, definition: { join } }) =>
          delayMs > 0 || keyOf !== undefined || (join?.timeoutMs !== undefined && join.timeoutMs <= 2 * pollMs),
      )
      finisher = openFinisher(parts, { owner, graceMs: leaseMs, lost: lost.signal })
      const routes = [...handlers.keys()]
      await enterWorker(log, { owner, node, leaseMs, concurrency, routes })
      if (stopping.signal.aborted) return
      releases.push(wake.onWork(hear(false)), wake.onChange(hear(true)))
      // One that has ended makes room for another of its handler.
      if ([...handlers.values()].some(handler => handler.concurrency !== undefined))
        releases.push(wake.onEnd(hear(false)))
      releases.push(wake.onEnd(() => hasChildWaits && lookIn(childEveryMs)))
      if (seats !== undefined)
        releases.push(
          seats.onFree(() => {
            fill()
            hear(false)()
          }),
        )
      loop.lookSoon()
      const taker = { offer }
      parts.takers.add(taker)
      releases.push(() => parts.takers.delete(taker))
      host = openHost(parts.consumers, { hosted: dispatchers, node: undefined, leaseMs })
      await host.start()
    },
    stop: stopOnce(),
  }

  function hear(isChange: boolean): () => void {
    return () => {
      isHinted = true
      if (isChange || isWatchful) isTickDue = true
      wakeUp()
    }
  }

  function dispatchers(): ReturnType<Parameters<typeof openHost>[1]['hosted']> {
    const found = parts.consumers.get(dispatcherName)
    if (found === undefined) return []
    const { name, kind, startFrom } = found
    // Who takes over executions after so long takes over dispatching, too.
    const leased = { ...found, leaseMs }
    return [{ name, kind, startFrom, leaseMs, run: hold => follow(parts.consumers, leased, hold) }]
  }

  async function work(): Promise<number> {
    const isSeen = (isTickDue || performance.now() >= nextTickAt) && (await look())
    if (isHinted && isHungry()) {
      isHinted = false
      if (await claimMore(isSeen)) isHinted = true
    }
    fill()
    return (isHinted && isHungry()) || isTickDue ? 0 : Math.max(0, nextTickAt - performance.now())
  }

  /** True if nobody has told of anything meanwhile. */
  async function look(): Promise<boolean> {
    const wasHinted = isHinted
    isTickDue = isHinted = false
    const routes = [...handlers.keys()]
    // Whoever asks for a look meanwhile is not forgotten.
    nextTickAt = Number.POSITIVE_INFINITY
    const lookedAt = performance.now()
    const seen = await tick(log, owner, routes, parts.upkeep.schedules())
    await compare(seen, lookedAt)
    await confirm(seen.stopping)
    // Others took us for dead.
    if (!seen.isKnown) await enterWorker(log, { owner, node, leaseMs, concurrency, routes })
    hasChildWaits = seen.hasChildWaits
    const { inMs, isWorkLikely } = await parts.upkeep.run(seen, { owner, handlers, leaseMs, lookIn })
    const isSeen = !isHinted
    // A hint that did not arrive is made up for here.
    if (wasHinted || isWorkLikely || seen.hasReady) isHinted = true
    const pollInMs = pollMs * (0.8 + 0.4 * Math.random())
    lookIn(Math.max(0, Math.min(pollInMs, leaseMs / 3, inMs, seen.nextRatedInMs ?? Number.POSITIVE_INFINITY)))
    return isSeen
  }

  /**
   * What is stored as ours decides: the rest of what we have is others' by now, and what we have not heard of is free, as is
   * what was taken ahead and had to wait too long.
   */
  async function compare({ isKnown, own }: Tick, lookedAt: number): Promise<void> {
    // What was taken over from the dispatcher during the look may not be in it.
    const isOurs = (executions: readonly Claimed[]): boolean =>
      isKnown && executions.some(({ id, fence, claimedAt }) => own.get(id) === fence || claimedAt >= lookedAt)
    for (const [id, slot] of slots) if (!isOurs(slot.executions)) lose(id, slot)
    // An attempt has its timeout and a lease from its claim on: begun later than that it would be taken for lost.
    const isStale = ([head]: readonly Claimed[]): boolean => lookedAt - head!.claimedAt > leaseMs / 2
    if (ready.some(isStale)) averageMs = Math.max(averageMs, quickMs)
    ready = ready.filter(executions => isOurs(executions) && !isStale(executions))
    const known = new Set([...ready, ...[...slots.values()].map(slot => slot.executions)].flat().map(({ id }) => id))
    for (const id of ending) if (!own.has(id)) ending.delete(id)
    const forgotten = [...own].flatMap(([id, fence]) =>
      known.has(id) || ending.has(id) || offered.has(fence) ? [] : [id],
    )
    if (forgotten.length > 0 && (await releaseForgotten(log, owner, forgotten)) > 0) wake.worked()
  }

  /** What is to stop and has stopped is in nobody's way any more. */
  async function confirm(stopping: readonly Stopping[]): Promise<void> {
    const stopped = atWork.over(stopping)
    if (stopped.length === 0 || (await confirmStopped(log, stopped)) === 0) return
    wake.worked()
    wake.ended()
  }

  function lookIn(ms: number): void {
    nextTickAt = Math.min(nextTickAt, performance.now() + Math.ceil(ms) + 1)
    loop.lookIn(Math.ceil(ms) + 1)
  }

  /** Taken away by another worker, a cancellation, or its own time. */
  function lose(id: string, { over, executions }: Slot): void {
    const [first] = executions
    if (first === undefined) return
    const handler = handlers.get(first.route)?.name ?? ''
    over.cut(new ExecutionLost({ handler, executionId: first.id }))
    slots.delete(id)
  }

  /** Whether it is time to take more: many at once, or as soon as one can be run. */
  function isHungry(): boolean {
    return ready.length <= ahead() / 2 && slots.size + ready.length < room() + ahead()
  }

  /** As many as may run at once, by this worker's own limit and that of those it shares seats with. */
  function room(): number {
    return seats === undefined ? concurrency : Math.min(concurrency, slots.size + seats.free())
  }

  /** As much as is done in a tenth of a second. Slow ones are left to who has time for them. */
  function ahead(): number {
    return averageMs < quickMs ? Math.min(mostAhead, Math.floor((100 * concurrency) / Math.max(averageMs, 0.1))) : 0
  }

  async function offer(): Promise<Offer | undefined> {
    if (stopping.signal.aborted || room() + ahead() - slots.size - ready.length <= 0) return undefined
    const fence = await nextFence()
    offered.add(fence)
    return {
      ...{ owner, fence, routes: [...handlers.keys()], graceMs: leaseMs },
      limit: Math.max(0, room() + ahead() - slots.size - ready.length),
      end(begun) {
        offered.delete(fence)
        if (stopping.signal.aborted) return void giveBack(begun)
        ready.push(...groupsOf(begun))
        fill()
      },
    }
  }

  /** True if there may be more. `isSeen`: a look right before it has told when the next of those with a rate may begin. */
  async function claimMore(isSeen: boolean): Promise<boolean> {
    const limit = room() + ahead() - slots.size - ready.length
    if (limit <= 0 || handlers.size === 0) return false
    const request = { owner, fence: await nextFence(), routes: [...handlers.keys()], limit }
    const claimed = await claim(log, { ...request, ahead: laneAhead, graceMs: leaseMs })
    if (isRated && claimed.length < limit && (claimed.length > 0 || !isSeen)) nextTickAt = performance.now()
    ready.push(...groupsOf(claimed))
    return claimed.length >= limit
  }

  function fill(): void {
    while (slots.size < room() && ready.length > 0 && !stopping.signal.aborted) {
      const executions = ready.shift()!
      const slot: Slot = { executions, over: new Cutoff() }
      const id = executions[0]!.id
      slots.set(id, slot)
      const rise = once(async () => seats?.rise())
      seats?.sit()
      const leave = (): void => {
        void rise()
        if (slots.get(id) !== slot) return
        slots.delete(id)
        fill()
        if (ready.length <= ahead() / 2) wakeUp()
      }
      void runGroup(slot, leave).finally(leave)
    }
  }

  /** Those of one lane one after the other: the next begins when the one before it is stored. */
  async function runGroup({ executions, over }: Slot, leave: () => void): Promise<void> {
    for (const [at, execution] of executions.entries()) {
      if (isRillflowError(over.reason, 'execution_lost')) return
      ending.delete(execution.id)
      const handler = handlers.get(execution.route)!
      const started = performance.now()
      const about = { over, leaseMs, interruptions: interruptions.of(execution.id) }
      const outcome = await atWork.run(execution.id, leave =>
        runExecution(parts, execution, handler, { ...about, leave }),
      )
      interruptions.note(execution.id, outcome)
      averageMs += (performance.now() - started - averageMs) / 20
      if (isRillflowError(over.reason, 'execution_lost')) return
      const isParking = outcome.told === 'failed' && handler.definition.onDead === 'park'
      const isLast = stopping.signal.aborted || outcome.kind !== 'done' || isParking
      const next = isLast ? undefined : executions[at + 1]?.id
      // Its code has ended: another may run while what it came to is stored.
      ending.add(execution.id)
      if (executions.length === 1 && finisher.size < mostAhead) leave()
      // One that cannot be stored is not given back, or it would be run over and over: others take it for a crash in time.
      const finished = await store(outcome, handler, next).catch((error: unknown) => {
        log.telemetry.log.error({ schema: log.schema, executionId: execution.id, error }, 'an outcome was not stored')
        return 'unstored' as const
      })
      if (finished !== 'unstored') ending.delete(execution.id)
      if (finished !== 'continued') return
    }
  }

  /** What is refused is stored as the failure it is; a failure, if need be, without what tells of it. */
  async function store(outcome: Outcome, handler: Handler, next?: string): Promise<Finished> {
    try {
      const finished = await finisher.finish(outcome, next)
      // A wait for a child is known to those who have looked.
      if (outcome.delayMs !== undefined || outcome.kind === 'suspend') lookIn(outcome.delayMs ?? 0)
      return finished
    } catch (error) {
      await store(await refusedOutcome(parts, outcome, handler, error), handler)
      return 'refused'
    }
  }

  function stopOnce(): RunningWorker['stop'] {
    let limitMs = 30_000
    const end = once(async () => {
      stopping.abort()
      for (const release of releases) release()
      wakeUp()
      await host?.stop()
      await loop.stop()
      const unstarted = ready
      ready = []
      await giveBack(unstarted.map(([head]) => head!))
      await Promise.all([settledWithin(whenIdle(), limitMs), parts.upkeep.drain(owner, limitMs)])
      for (const { over } of slots.values()) over.cut(new Error('the worker is stopped'))
      if (slots.size > 0) await settledWithin(whenIdle(), 1_000)
      if (finisher !== undefined) await settledWithin(finisher.drain(), 5_000)
      lost.abort()
      // A database that is away frees it all when the sign of life is too old.
      await leaveWorker(log, owner).catch(() => {})
      slots.clear()
      wake.worked()
    })
    return drainMs => {
      limitMs = drainMs
      return runOutside(end)
    }
  }

  async function giveBack(unstarted: readonly Claimed[]): Promise<void> {
    const outcome = {
      kind: 'release',
      told: 'released',
      detail: 'stopped',
      runningMs: 0,
      emits: [],
      hasSteps: false,
    } as const
    const gaveBack = unstarted.map(execution => finisher.finish({ ...outcome, execution }).catch(() => {}))
    await settledWithin(Promise.all(gaveBack), 5_000)
  }

  async function whenIdle(): Promise<void> {
    while (slots.size > 0) await new Promise(resolve => setTimeout(resolve, 5))
  }
}
