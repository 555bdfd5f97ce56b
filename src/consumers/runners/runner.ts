/**
 * A runner, as `store.start()` returns it. It runs the definitions of the store in this process, and shares them with
 * the runners of other processes.
 *
 *     enter ──► parts start ──► loop, every third of a lease and at each hint:
 *                                  heartbeat: renews the row and all leases, and reads the others
 *                                    ──► role changed ──► parts start, or stop
 *                                    ──► leases: release those that others should hold, take free ones
 *     stop ──► parts stop, leases are released (heartbeats continue until then) ──► leave
 *
 * Guarantees:
 * - A standby, or a paused runner, runs nothing at all: neither consumers nor handlers.
 * - While it stops, it renews its leases, so running work may take as long as `stop` allows.
 * - A runner stops if another one takes its name.
 *
 * What can fail: the database is away: the loop looks again after a backoff, and leases that may have expired are lost.
 * A part that does not start makes `start` reject, and everything that had started is stopped.
 */

import { AsyncResource } from 'node:async_hooks'
import { InvalidOption } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { openLoop } from '../../core/loop.ts'
import { checkName } from '../../core/name.ts'
import { checkWhole, refuseUnknownOptions } from '../../core/options.ts'
import { retry } from '../../core/retry.ts'
import type { Service, ServiceDefinition, Services } from '../../core/service.ts'
import type { Log } from '../../events/log.ts'
import type { Wake } from '../../events/order/wake.ts'
import { markSeen, newOwner } from '../row.ts'
import type { ConcurrencyShare } from './concurrency.ts'
import { openLeases } from './leases.ts'
import { processReport } from './process.ts'
import {
  becomeActive,
  type EnteredRunner,
  enter,
  heartbeat,
  isNameTaken,
  leave,
  type RunnerRole,
  seenEveryMs,
  servesNothing,
  setRole,
  storeServes,
} from './row.ts'
import { type Leased, type Only, type RunContext, type Runnable, type RunningPart, wantedBy } from './runnable.ts'

/**
 * The definitions that a runner runs, and how.
 *
 * @example
 * ```ts
 * const options: RunnerOptions = { only: ['projections'], name: 'reader' }
 * ```
 */
export interface RunnerOptions {
  /** The definitions to run, or kinds of them by name. Default: all, also those that are registered later. */
  only?: Only | undefined
  /** A name that stays the same when the process starts again; another runner of the name is replaced. */
  name?: string | undefined
  /** Run nothing while another runner with a name is active; take over when it is gone. Needs a name. Default false. */
  standby?: boolean | undefined
  /** Run nothing until `resume()`, or `store.runners.promote()`. Default false. */
  paused?: boolean | undefined
  /** The most handlers at the same time. Default 16. */
  concurrency?: number | undefined
  /** How long until other runners take over without a heartbeat. Default 15 000; consumers have leases of their own. */
  leaseMs?: number | undefined
  /** How often it looks for executions without a hint. Default 2000. */
  pollMs?: number | undefined
}

export const startOptionNames: readonly (keyof RunnerOptions)[] = [
  'only',
  'name',
  'standby',
  'paused',
  'concurrency',
  'leaseMs',
  'pollMs',
]

/**
 * The result of `store.start()`: it runs consumers and handlers in this process until it is stopped.
 *
 * @example
 * ```ts
 * const runner: Runner = await store.start()
 * await runner.stop({ timeoutMs: 5_000 })
 * ```
 */
export interface Runner extends Service {
  /** A random id, a new one with each start. */
  readonly id: string
  readonly name: string | undefined
  readonly role: RunnerRole
  /** The consumers whose leases it holds now. */
  holds(): string[]
  /** Runs nothing from then on, until `resume`. Running work completes. */
  pause(): Promise<void>
  resume(): Promise<void>
}

export interface RunnerParts {
  readonly log: Log
  readonly wake: Wake
  readonly runnables: readonly Runnable[]
}

/** Called when a definition has failed for good. */
export type OnFailure = (name: string, error: unknown) => void

export interface RunnerHooks {
  readonly onFailure?: OnFailure | undefined
  /** Its part of a limit that it shares with the runners of other stores. */
  readonly share?: ConcurrencyShare | undefined
}

/** Resolves when the runner has taken the free leases, or waits on standby. */
export async function startRunner(
  services: Services,
  parts: RunnerParts,
  options: RunnerOptions,
  { onFailure = () => {}, share }: RunnerHooks = {},
): Promise<Runner> {
  const { control, definition } = runnerService(parts, options, onFailure, share, () => void runner?.stop())
  let runner: Runner | undefined
  // In the context of the caller, so that a trace in which a runner is started includes its handlers.
  const caller = new AsyncResource('rillflow.runner')
  const start: ServiceDefinition['start'] = stopping => caller.runInAsyncScope(() => definition.start(stopping))
  const service = await services.start({ ...definition, start })
  runner = Object.defineProperties(service, Object.getOwnPropertyDescriptors(control)) as Runner
  return runner
}

interface RunnerService {
  readonly control: Omit<Runner, keyof Service>
  readonly definition: ServiceDefinition
}

const lookBackoff = { baseMs: 50, factor: 2, maxMs: 5_000, jitter: 0.5 }
/** How long running work may take to complete when the runner stops, unless `stop` says otherwise. */
const stopTimeoutMs = 30_000

function runnerService(
  { log, wake, runnables }: RunnerParts,
  options: RunnerOptions,
  onFailure: OnFailure,
  share: ConcurrencyShare | undefined,
  onReplaced: () => void,
): RunnerService {
  const { name, standby = false, paused = false, concurrency, pollMs = 2_000 } = checkStart(options)
  const ownLeaseMs = options.leaseMs ?? 15_000
  const isWanted = wantedBy(options.only, runnables)
  const id = newOwner(log)
  const reportProcess = processReport()
  let entered: EnteredRunner | undefined
  let role: RunnerRole = paused ? 'paused' : standby ? 'standby' : 'active'
  let isStopping = false
  let isReplaced = false
  let serves = servesNothing
  let storing: Promise<void> = Promise.resolve()
  let lastSeenAt = elapsedMs()
  /** When to store again that it has the code of its consumers. */
  let seenUntil = 0
  let hasLooked = false
  /** The consumers that cannot begin, and were reported. */
  const reported = new Set<string>()
  let parts: readonly RunningPart[] = []
  /** Starts and stops of parts, one after the other. */
  let switching: Promise<void> = Promise.resolve()
  let stopListening: (() => void) | undefined
  let endReports = (): void => {}

  const leases = openLeases({ log, wake }, { id, onFailure, onReleased: () => loop.lookSoon() })
  const leased = (): Leased[] => parts.flatMap(part => part.leased?.() ?? [])
  const leaseMs = (): number => Math.min(ownLeaseMs, ...leased().map(each => each.leaseMs))
  const loop = openLoop({
    look,
    pollMs: () => leaseMs() / 3,
    jitter: 0.1,
    backoff: lookBackoff,
    onFailure(error) {
      log.telemetry.log.warn({ schema: log.schema, runner: id, error }, 'A runner could not renew its leases.')
      leases.loseExpired(lastSeenAt)
    },
  })
  const context: RunContext = {
    ...{ id, name, concurrency, share, isWanted, leaseMs: ownLeaseMs, consumerLeaseMs: options.leaseMs, onFailure },
    pollMs,
    refresh: loop.lookSoon,
    async serve(given) {
      serves = given
      // Routes that are stored late would outlive the release of the executions.
      await storing.catch(() => {})
      await storeRoutes()
    },
  }

  const definition: ServiceDefinition = {
    timeoutMs: stopTimeoutMs,
    async start(stopping) {
      endReports = log.telemetry.reportFailures()
      // A connection that is lost at this moment does not prevent the start.
      entered = await retry(() => enter(log, { id, name, role, leaseMs: leaseMs(), serves }), {
        retries: 6,
        signal: stopping,
      })
      role = entered.role
      if (role === 'active') await startParts()
      if (stopping.aborted) return
      stopListening = wake.onChange(loop.lookSoon)
      const again = { retries: Number.POSITIVE_INFINITY, backoff: lookBackoff, signal: stopping }
      await retry(() => loop.lookNow(), again).catch((error: unknown) => {
        if (!stopping.aborted) throw error
      })
      wake.changed()
    },
    async stop(cutOff) {
      isStopping = true
      loop.lookSoon()
      await Promise.all([leases.drain(cutOff), switchParts(() => stopParts(cutOff))])
      stopListening?.()
      await loop.stop()
      // If the database is away, the row is removed by another runner when its heartbeat is too old.
      if (entered !== undefined && !isReplaced) await leave(log, id).catch(() => {})
      endReports()
      wake.changed()
    },
  }
  const control: RunnerService['control'] = {
    id,
    name,
    get role() {
      return role
    },
    holds: leases.names,
    pause: () => changeRole('paused'),
    resume: () => changeRole('active'),
  }
  return { control, definition }

  async function look(): Promise<number | undefined> {
    if (entered === undefined) return undefined
    const startedAt = elapsedMs()
    const all = isStopping ? [] : leased()
    const refused = await leases.ensure(all)
    report(refused)
    const held = leases.held()
    const names = all.map(each => each.name)
    await storeSeen(names)
    const wanted = names.filter(name => !leases.isLeft(name))
    const view = await heartbeat(log, { ...entered, leaseMs: leaseMs(), process: reportProcess() }, wanted, held)
    if (view.role === undefined) return enterAgain()
    if (!view.isServing) await storeRoutes()
    if (view.isNext && !isStopping && (await becomeActive(log, id))) return 0
    if (view.role !== role) onRole(view.role)
    await leases.follow(view, all)
    lastSeenAt = startedAt
    hasLooked = true
    return undefined
  }

  /** When the runner starts, it fails with the error of a consumer that cannot begin; later the others continue. */
  function report(refused: ReadonlyMap<string, unknown>): void {
    for (const [consumer, error] of refused) {
      if (!hasLooked) throw error
      if (reported.has(consumer)) continue
      reported.add(consumer)
      log.telemetry.log.error({ schema: log.schema, consumer, error }, 'A consumer cannot begin.')
      onFailure(consumer, error)
    }
  }

  async function storeSeen(names: readonly string[]): Promise<void> {
    if (names.length === 0 || elapsedMs() < seenUntil) return
    await markSeen(log, names)
    seenUntil = elapsedMs() + seenEveryMs
  }

  async function storeRoutes(): Promise<void> {
    if (serves.routes.length === 0) return
    storing = storeServes(log, id, serves)
    await storing
  }

  /** Its row is gone: it was away for long, or another runner has its name. */
  async function enterAgain(): Promise<number | undefined> {
    leases.loseAll()
    if (isStopping || isReplaced) return undefined
    if (name === undefined || !(await isNameTaken(log, name, id))) {
      // With a name it may be that another runner became active meanwhile: it waits, and is next if none is.
      const again = name !== undefined && role === 'active' ? 'standby' : role
      entered = await enter(log, { id, name, role: again, leaseMs: leaseMs(), serves })
      wake.changed()
      return 0
    }
    log.telemetry.log.warn({ schema: log.schema, runner: name }, 'Another runner has taken the name of this one.')
    isReplaced = true
    // A look must not wait for the end of its own loop.
    queueMicrotask(onReplaced)
    return undefined
  }

  async function changeRole(to: RunnerRole): Promise<void> {
    await setRole(log, id, to)
    await loop.lookNow()
    await switching
  }

  /** Not awaited by the heartbeat: parts may take long to stop. */
  function onRole(next: RunnerRole): void {
    role = next
    log.telemetry.log.info({ schema: log.schema, runner: name ?? id, role }, 'The role of a runner has changed.')
    const change = next === 'active' ? startParts : () => stopParts(new AbortController().signal)
    void switchParts(change).catch((error: unknown) =>
      log.telemetry.log.error({ schema: log.schema, runner: name ?? id, error }, 'A runner could not change its role.'),
    )
  }

  function switchParts(change: () => Promise<void>): Promise<void> {
    const next = switching.catch(() => {}).then(change)
    switching = next
    return next
  }

  async function startParts(): Promise<void> {
    if (parts.length > 0 || isStopping) return
    const started: RunningPart[] = []
    try {
      for (const runnable of runnables) {
        if (!isAsked(runnable)) continue
        started.push(await runnable.start(context))
      }
    } finally {
      // Also after a failure: the parts that have started are stopped with the runner.
      parts = started
    }
    loop.lookSoon()
  }

  function isAsked(runnable: Runnable): boolean {
    const { only } = options
    if (only === undefined) return true
    return runnable.kinds.some(
      kind => only.includes(kind) || runnable.names(kind).some(definition => isWanted(kind, definition)),
    )
  }

  async function stopParts(cutOff: AbortSignal): Promise<void> {
    const stopped = parts
    parts = []
    await Promise.all(stopped.map(part => part.stop(cutOff)))
  }
}

/** Refuses options that could only fail later. */
function checkStart(options: RunnerOptions): RunnerOptions {
  refuseUnknownOptions('A runner', options, startOptionNames)
  const { name, standby = false, paused = false, concurrency, leaseMs, pollMs } = options
  if (name !== undefined) checkName('Runner', name)
  if (standby && name === undefined)
    refuse('standby', 'A runner on standby needs a name: start({ name, standby: true }).')
  if (standby && paused) refuse('paused', 'A runner is either on standby or paused. Leave one of the two out.')
  if (concurrency !== undefined) checkWhole('concurrency', concurrency, 1, 10_000)
  if (leaseMs !== undefined) checkWhole('leaseMs', leaseMs, 50)
  if (pollMs !== undefined) checkWhole('pollMs', pollMs, 1)
  return options
}

function refuse(option: string, reason: string): never {
  throw new InvalidOption({ option, reason })
}
