/**
 * Runs many tenants in one process, but only those that have work.
 *
 *     idle    ──its log has grown, a hint, something is due, its turn to be looked at──► active
 *     active  ──nothing to do, for a while──► idle
 *
 * An idle tenant costs a line in one answer per second and server (`has-work.ts`), and a look of its own from time to
 * time, one tenant after the other, for work that no log shows, such as a retry that was requested while nothing
 * listened. Its old rows are deleted a few times a day. An active tenant has everything it would have if it were the
 * only one, so the same guarantees hold.
 *
 *     list, every 5 rounds ──► the tenants of each server
 *     round, per server ─────► heads of all logs ──► start the tenants that are due ──► stop those that are idle
 *
 * Guarantees:
 * - Nothing is missed. A tenant becomes idle only after a look that found no work and returned the last position drawn;
 *   everything that is appended later has a higher position. A hint that comes during the look voids it.
 * - Each tenant is started once when this process first sees it, so that consumers and handlers that begin 'now' begin
 *   before the next events. Tenants that are made, dropped or moved are noticed within a few rounds.
 * - Each server has rounds of its own. A server that cannot be reached, or accepts connections and never answers, delays
 *   only its own tenants.
 *
 * What can fail: the list, a round, or one tenant. Each is reported to `onFailure` and tried again after a pause.
 */

import { abortable, deadline, onAbort } from '../core/abort.ts'
import { isRillflowError } from '../core/errors.ts'
import { elapsedMs } from '../core/host.ts'
import { type Loop, openLoop } from '../core/loop.ts'
import { defaultBackoff, delay } from '../core/retry.ts'
import type { ServiceDefinition } from '../core/service.ts'
import { workflowHints } from '../workflows/hints.ts'
import { readLogHeads, readWork } from './has-work.ts'
import type { Placement, Placements } from './placement.ts'
import type { TenantInstance } from './tenancy.ts'

export interface TenantsRunnerOptions<S> {
  /** `'all'` includes tenants that are made later. */
  readonly tenants: 'all' | readonly string[]
  /** How often each server is asked without a hint. */
  readonly pollMs: number
  /** How long a tenant must have had nothing to do before it is stopped. */
  readonly idleMs: number
  readonly instanceOf: (tenant: string) => TenantInstance<S>
  /** Starts the runner of one tenant in this process. */
  readonly start: (instance: TenantInstance<S>) => Promise<StartedTenant>
  /** `'*'` stands for the list of tenants. */
  readonly onFailure?: ((tenant: string, error: unknown) => void) | undefined
}

export interface StartedTenant {
  stop(): Promise<void>
}

/** A service for `core/service`. It can be started once. */
export interface TenantsRunner extends ServiceDefinition {
  /** Resolves when every tenant that exists has been started once, or could not be. */
  start(stopping: AbortSignal): Promise<void>
  /** The tenants that are active in this process. */
  active(): string[]
}

interface TrackedTenant<S> {
  readonly instance: TenantInstance<S>
  server: string
  started: StartedTenant | undefined
  /** The last position drawn when it became idle; undefined if it has to be started. */
  idleAt: number | undefined
  /** When it has something to do next, by the clock of this process. */
  dueAt: number
  /** When it last had something to do. */
  activeAt: number
  isBusy: boolean
  /** Whether it was started here at least once. */
  hasRun: boolean
  failures: number
  notBefore: number
  stopListening: () => void
}

/** The rounds of one server. */
interface ServerRounds {
  readonly server: string
  placed: readonly Placement[]
  rounds: number
  /** Tenants that are still to be looked at in this turn. */
  turn: string[]
  readonly loop: Loop
  first: Promise<void>
}

/** A look at an idle tenant is a statement, so it comes only in every second round: idle servers stay idle. */
const roundsPerLook = 2
const roundsPerList = 5
/** Tenants that are started at the same time. More would only queue for connections. */
const startedAtOnce = 4
/** A server that takes longer to answer is treated as unreachable. */
const answerMs = 10_000

export function openTenantsRunner<S>(placements: Placements, options: TenantsRunnerOptions<S>): TenantsRunner {
  const { tenants, pollMs, idleMs, instanceOf, onFailure } = options
  const tracked = new Map<string, TrackedTenant<S>>()
  const servers = new Map<string, ServerRounds>()
  const stopping = new AbortController()
  let listing: Loop | undefined

  return {
    timeoutMs: 30_000,
    async start(signal) {
      onAbort(signal, () => stopping.abort())
      await list()
      await Promise.all([...servers.values()].map(({ first }) => first))
      const listMs = roundsPerList * pollMs
      listing = openLoop({
        look: async () => void (await list()) as undefined,
        pollMs: listMs,
        backoff: { baseMs: listMs, factor: 1, maxMs: listMs, jitter: 0.2 },
        onFailure: error => onFailure?.('*', error),
      })
      listing.lookIn(listMs)
    },
    async stop() {
      stopping.abort()
      await Promise.all([listing?.stop(), ...[...servers.values()].map(({ loop }) => loop.stop())])
      servers.clear()
      await Promise.all([...tracked.values()].map(untrack))
      tracked.clear()
    },
    active: () => [...tracked].filter(([, { started }]) => started !== undefined).map(([tenant]) => tenant),
  }

  /** Reads which tenants there are, and on which server. */
  async function list(): Promise<void> {
    const placed = await abortable(placements.list(), stopping.signal)
    const byServer = new Map<string, Placement[]>([...servers.keys()].map(server => [server, []]))
    const present = new Set<string>()
    for (const placement of placed) {
      if (tenants !== 'all' && !tenants.includes(placement.tenant)) continue
      present.add(placement.tenant)
      // All nodes of a cluster answer through one address.
      const server = placements.cluster === undefined ? placement.server : 'cluster'
      const known = byServer.get(server)
      if (known === undefined) byServer.set(server, [placement])
      else known.push(placement)
    }
    await Promise.all([...tracked].filter(([tenant]) => !present.has(tenant)).map(remove))
    for (const [server, list] of byServer) {
      const known = servers.get(server)
      if (known === undefined) addServer(server, list)
      else known.placed = list
    }
  }

  function addServer(server: string, placed: readonly Placement[]): void {
    const loop = openLoop({
      look: async () => {
        await runRound(rounds)
        return tenantsOf(rounds).some(isDue) ? 0 : undefined
      },
      pollMs,
    })
    const rounds: ServerRounds = { server, placed, rounds: 0, turn: [], loop, first: Promise.resolve() }
    servers.set(server, rounds)
    rounds.first = loop.lookNow().catch(() => {})
  }

  function tenantsOf({ server }: ServerRounds): TrackedTenant<S>[] {
    return [...tracked.values()].filter(tenant => tenant.server === server)
  }

  /** One answer of the server, then the tenants that have to be started, looked at or stopped. */
  async function runRound(rounds: ServerRounds): Promise<void> {
    rounds.rounds++
    if (rounds.placed.length > 0) await readHeads(rounds)
    const inTurn = nextInTurn(rounds)
    const chosen = tenantsOf(rounds).filter(tenant => isDue(tenant) || tenant === inTurn)
    for (let at = 0; at < chosen.length; at += startedAtOnce)
      await Promise.all(chosen.slice(at, at + startedAtOnce).map(startIfNeeded))
    await Promise.all(tenantsOf(rounds).filter(isQuiet).map(stopIfIdle))
  }

  /** A tenant whose log has grown since it became idle has to be started. */
  async function readHeads({ server, placed }: ServerRounds): Promise<void> {
    const limit = deadline(stopping.signal, answerMs, { what: `The answer of server "${server}"` })
    try {
      const asking = placements.databaseOf(server).then(database => readLogHeads(database, placements.prefix))
      const heads = await abortable(asking, limit.signal)
      for (const { tenant: name, schema } of placed) {
        const head = heads.get(schema)
        if (head === undefined) continue
        const tenant = await trackedTenant(name, server)
        if (tenant.server !== server) tenant.idleAt = undefined
        tenant.server = server
        if (tenant.idleAt !== undefined && head > tenant.idleAt) tenant.idleAt = undefined
      }
    } catch (error) {
      if (stopping.signal.aborted) return
      for (const { tenant } of placed) onFailure?.(tenant, error)
    } finally {
      limit.dispose()
    }
  }

  /** A tenant that was dropped and made again has another instance; the one it had is closed. */
  async function trackedTenant(name: string, server: string): Promise<TrackedTenant<S>> {
    const instance = instanceOf(name)
    const known = tracked.get(name)
    if (known?.instance === instance) return known
    if (known !== undefined) await remove([name, known])
    return track(name, server, instance)
  }

  function track(name: string, server: string, instance: TenantInstance<S>): TrackedTenant<S> {
    const tenant: TrackedTenant<S> = {
      instance,
      server,
      started: undefined,
      idleAt: undefined,
      dueAt: Number.POSITIVE_INFINITY,
      activeAt: 0,
      isBusy: false,
      hasRun: false,
      failures: 0,
      notBefore: 0,
      stopListening: () => {},
    }
    const onHint = (): void => {
      tenant.activeAt = elapsedMs()
      if (tenant.idleAt === undefined) return
      tenant.idleAt = undefined
      servers.get(tenant.server)?.loop.lookSoon()
    }
    const { wake } = instance
    // Upkeep also while it is idle: a tenant that is seldom active would otherwise never delete its old rows.
    const ends = [
      wake.onHint(onHint),
      wake.onChange(onHint),
      workflowHints(wake).onReady(onHint),
      instance.startUpkeep(),
    ]
    tenant.stopListening = () => {
      for (const end of ends) end()
    }
    tracked.set(name, tenant)
    return tenant
  }

  function isDue(tenant: TrackedTenant<S>): boolean {
    const now = elapsedMs()
    if (tenant.started !== undefined || tenant.notBefore > now) return false
    return tenant.idleAt === undefined || tenant.dueAt <= now
  }

  function isQuiet(tenant: TrackedTenant<S>): boolean {
    return tenant.started !== undefined && elapsedMs() - tenant.activeAt >= idleMs
  }

  /** The next idle tenant to look at, one after the other. */
  function nextInTurn(rounds: ServerRounds): TrackedTenant<S> | undefined {
    if (rounds.rounds % roundsPerLook !== 0) return undefined
    if (rounds.turn.length === 0) rounds.turn = tenantsOf(rounds).map(({ instance }) => instance.tenant)
    const tenant = tracked.get(rounds.turn.pop() ?? '')
    return tenant?.started === undefined ? tenant : undefined
  }

  async function startIfNeeded(tenant: TrackedTenant<S>): Promise<void> {
    if (tenant.isBusy || stopping.signal.aborted) return
    tenant.isBusy = true
    try {
      if ((await hasWork(tenant)) || !tenant.hasRun) {
        tenant.idleAt = undefined
        tenant.started = await options.start(tenant.instance)
        tenant.activeAt = elapsedMs()
        tenant.hasRun = true
      }
      tenant.failures = 0
    } catch (error) {
      fail(tenant, error)
    } finally {
      tenant.isBusy = false
    }
  }

  /** Stops a tenant that has nothing to do. It runs until that is known. */
  async function stopIfIdle(tenant: TrackedTenant<S>): Promise<void> {
    if (tenant.isBusy || stopping.signal.aborted) return
    tenant.isBusy = true
    try {
      if (await hasWork(tenant)) {
        tenant.activeAt = elapsedMs()
        return
      }
      await tenant.started?.stop()
      tenant.started = undefined
    } catch (error) {
      fail(tenant, error)
    } finally {
      tenant.isBusy = false
    }
  }

  /** Also true if something is due soon. If not, the tenant is idle from the position that was drawn last. */
  async function hasWork(tenant: TrackedTenant<S>): Promise<boolean> {
    const { log, consumers } = tenant.instance
    const names = consumers.list().map(({ name }) => name)
    // A hint during the look sets this to undefined, which makes the look worthless.
    tenant.idleAt = 0
    const work = await abortable(readWork(log, names), stopping.signal)
    const { nextInMs } = work
    tenant.dueAt = nextInMs === undefined ? Number.POSITIVE_INFINITY : elapsedMs() + nextInMs
    if (work.hasWork || tenant.idleAt === undefined || (nextInMs !== undefined && nextInMs <= idleMs)) {
      tenant.idleAt = undefined
      return true
    }
    tenant.idleAt = work.head
    return false
  }

  function fail(tenant: TrackedTenant<S>, error: unknown): void {
    if (stopping.signal.aborted) return
    tenant.idleAt = undefined
    tenant.notBefore = elapsedMs() + delay(defaultBackoff, ++tenant.failures)
    if (isRillflowError(error, 'tenant_not_found')) return
    onFailure?.(tenant.instance.tenant, error)
  }

  async function remove([name, tenant]: [string, TrackedTenant<S>]): Promise<void> {
    tracked.delete(name)
    await untrack(tenant)
  }

  async function untrack(tenant: TrackedTenant<S>): Promise<void> {
    tenant.stopListening()
    await tenant.started?.stop()
    tenant.started = undefined
  }
}
