/**
 * Running something for many tenants: a daemon or a worker each, but only for those that have something to do.
 *
 *     asleep ──its log has grown, a hint, something is due, its turn to be looked at──► awake
 *     awake  ──nothing to do, for a while──► asleep
 *
 * Asleep, a tenant costs nothing but its line in one answer a second per server (`heads.ts`), and a look of its own now and
 * then, one tenant after the other, for what no log tells: a retry that was asked for, say, while nobody listened; and what
 * is old is deleted a few times a day. Awake, it has what it would have if it were alone; so what is guaranteed there is
 * guaranteed here.
 *
 * Nothing is missed: a tenant is put to sleep only after a look that found nothing to do and told up to where the log was
 * drawn; whatever is appended later has a higher position. Each tenant is woken once when this process first sees it, so
 * that consumers and handlers which begin 'now' begin before what comes next. Tenants that come, go or move to another server
 * are seen within a few rounds.
 *
 * Each server has rounds of its own: one that is away, or accepts connections and never answers, holds up its own tenants
 * and nobody else's.
 */
import { isRillflowError } from '../core/errors.ts'
import { abortable, deadline } from '../core/lifecycle.ts'
import { type Loop, openLoop } from '../core/loop.ts'
import { defaultBackoff, delay } from '../core/retry.ts'
import { lookAt } from './has-work.ts'
import { readHeads } from './heads.ts'
import type { TenantInstance } from './instance.ts'
import type { Placement, Placements } from './placement.ts'

export interface Running {
  stop(): Promise<void>
}

export interface RosterOptions<S> {
  /** Which tenants. Default 'all', also those that come later. */
  readonly tenants: 'all' | readonly string[]
  /** How often to ask each server without a hint. */
  readonly pollMs: number
  /** How long a tenant must have had nothing to do. */
  readonly restMs: number
  readonly instanceOf: (tenant: string) => TenantInstance<S>
  readonly start: (instance: TenantInstance<S>) => Promise<Running>
  readonly onFailure?: ((tenant: string, error: unknown) => void) | undefined
}

interface Member<S> {
  readonly instance: TenantInstance<S>
  server: string
  running: Running | undefined
  /** Up to where the log was drawn when it fell asleep; undefined if it has to be woken. */
  asleepAt: number | undefined
  /** By the clock of this process. */
  dueAt: number
  activeAt: number
  isBusy: boolean
  /** Whether it was awake here at least once. */
  hasRun: boolean
  failures: number
  notBefore: number
  unhear: () => void
}

/** The rounds of one server. */
interface Beat {
  readonly server: string
  placed: readonly Placement[]
  rounds: number
  rotation: string[]
  readonly loop: Loop
  readonly first: Promise<void>
}

export interface Roster {
  start(): Promise<void>
  stop(): Promise<void>
  readonly isRunning: boolean
  /** Those that are awake. */
  awake(): string[]
}

/** Each look at one that sleeps takes a statement: one in so many rounds, so that idle servers stay idle. */
const roundsPerLook = 2
/** Asking who there is, too. */
const roundsPerList = 5
/** Tenants that are woken at the same time; more would only queue for connections. */
const wokenAtOnce = 4
/** A server that takes longer to answer is as good as away. */
const visitMs = 10_000

export function openRoster<S>(placements: Placements, options: RosterOptions<S>): Roster {
  const { tenants, pollMs, restMs, instanceOf, onFailure } = options
  const members = new Map<string, Member<S>>()
  const beats = new Map<string, Beat>()
  let stopping = new AbortController()
  let starting: Promise<void> | undefined
  let listing: Loop | undefined

  return {
    async start() {
      if (listing !== undefined) return
      starting ??= begin().finally(() => {
        starting = undefined
      })
      await starting
    },
    async stop() {
      stopping.abort()
      // What is being woken would run on otherwise.
      await starting?.catch(() => {})
      await Promise.all([listing?.stop(), ...[...beats.values()].map(({ loop }) => loop.stop())])
      listing = undefined
      beats.clear()
      await Promise.all([...members.values()].map(leave))
      members.clear()
    },
    get isRunning() {
      return listing !== undefined
    },
    awake: () => [...members].filter(([, { running }]) => running !== undefined).map(([tenant]) => tenant),
  }

  async function begin(): Promise<void> {
    stopping = new AbortController()
    await list()
    await Promise.all([...beats.values()].map(({ first }) => first))
    listing = openLoop({
      look: async () => void (await list()) as undefined,
      pollMs: roundsPerList * pollMs,
      backoff: { baseMs: roundsPerList * pollMs, factor: 1, maxMs: roundsPerList * pollMs, jitter: 0.2 },
      onFailure: error => onFailure?.('*', error),
    })
    listing.lookIn(roundsPerList * pollMs)
  }

  /** Who there is, and on which server. */
  async function list(): Promise<void> {
    const placed = await abortable(placements.list(), stopping.signal)
    const byServer = new Map<string, Placement[]>([...beats.keys()].map(server => [server, []]))
    const present = new Set<string>()
    for (const each of placed) {
      if (tenants !== 'all' && !tenants.includes(each.tenant)) continue
      present.add(each.tenant)
      const known = byServer.get(each.server)
      if (known === undefined) byServer.set(each.server, [each])
      else known.push(each)
    }
    await Promise.all([...members].filter(([tenant]) => !present.has(tenant)).map(dismiss))
    for (const [server, list] of byServer) {
      const beat = beats.get(server)
      if (beat === undefined) enlist(server, list)
      else beat.placed = list
    }
  }

  function enlist(server: string, placed: readonly Placement[]): void {
    const loop = openLoop({
      look: async () => {
        await round(beat)
        return membersOf(beat).some(isDue) ? 0 : undefined
      },
      pollMs,
    })
    const beat: Beat = { server, placed, rounds: 0, rotation: [], loop, first: Promise.resolve() }
    beats.set(server, beat)
    Object.assign(beat, { first: loop.lookNow().catch(() => {}) })
  }

  function membersOf({ server }: Beat): Member<S>[] {
    return [...members.values()].filter(member => member.server === server)
  }

  /** One answer of the server, then whoever has to be woken, looked at or put to rest. */
  async function round(beat: Beat): Promise<void> {
    beat.rounds++
    if (beat.placed.length > 0) await visit(beat)
    const inTurn = nextInTurn(beat)
    const chosen = membersOf(beat).filter(member => isDue(member) || member === inTurn)
    for (let at = 0; at < chosen.length; at += wokenAtOnce)
      await Promise.all(chosen.slice(at, at + wokenAtOnce).map(attend))
    await Promise.all(membersOf(beat).filter(isResting).map(rest))
  }

  /** A server that is away stops only its own tenants. */
  async function visit({ server, placed }: Beat): Promise<void> {
    const limit = deadline(stopping.signal, visitMs, { what: `The answer of server "${server}"` })
    try {
      const asking = placements.databaseOf(server).then(database => readHeads(database, placements.prefix))
      const heads = await abortable(asking, limit.signal)
      for (const { tenant, schema } of placed) {
        const head = heads.get(schema)
        if (head === undefined) continue
        const member = await memberOf(tenant, server)
        if (member.server !== server) member.asleepAt = undefined
        member.server = server
        if (member.asleepAt !== undefined && head > member.asleepAt) member.asleepAt = undefined
      }
    } catch (error) {
      if (stopping.signal.aborted) return
      for (const { tenant } of placed) onFailure?.(tenant, error)
    } finally {
      limit.dispose()
    }
  }

  /** One that was dropped and made again has another instance: the one it had is closed. */
  async function memberOf(tenant: string, server: string): Promise<Member<S>> {
    const instance = instanceOf(tenant)
    const member = members.get(tenant)
    if (member?.instance === instance) return member
    if (member !== undefined) await dismiss([tenant, member])
    return enter(tenant, server, instance)
  }

  function enter(tenant: string, server: string, instance: TenantInstance<S>): Member<S> {
    const member: Member<S> = {
      ...{ instance, server, running: undefined, asleepAt: undefined, isBusy: false, hasRun: false, failures: 0 },
      ...{ dueAt: Number.POSITIVE_INFINITY, activeAt: 0, notBefore: 0, unhear: () => {} },
    }
    const hear = (): void => {
      member.activeAt = performance.now()
      if (member.asleepAt === undefined) return
      member.asleepAt = undefined
      beats.get(member.server)?.loop.lookSoon()
    }
    const { wake } = instance
    // Asleep, too: who is never awake for hours would keep what is old for ever.
    const ends = [wake.onHint(hear), wake.onChange(hear), wake.onWork(hear), instance.tend()]
    member.unhear = () => {
      for (const end of ends) end()
    }
    members.set(tenant, member)
    return member
  }

  function isDue(member: Member<S>): boolean {
    const now = performance.now()
    if (member.running !== undefined || member.notBefore > now) return false
    return member.asleepAt === undefined || member.dueAt <= now
  }

  function isResting(member: Member<S>): boolean {
    return member.running !== undefined && performance.now() - member.activeAt >= restMs
  }

  /** Of those asleep, one after the other. */
  function nextInTurn(beat: Beat): Member<S> | undefined {
    if (beat.rounds % roundsPerLook !== 0) return undefined
    if (beat.rotation.length === 0) beat.rotation = membersOf(beat).map(({ instance }) => instance.tenant)
    const member = members.get(beat.rotation.pop() ?? '')
    return member?.running === undefined ? member : undefined
  }

  /** Wakes a tenant if there is something to do for it. */
  async function attend(member: Member<S>): Promise<void> {
    if (member.isBusy || stopping.signal.aborted) return
    member.isBusy = true
    try {
      if ((await hasWork(member)) || !member.hasRun) {
        member.asleepAt = undefined
        member.running = await options.start(member.instance)
        member.activeAt = performance.now()
        member.hasRun = true
      }
      member.failures = 0
    } catch (error) {
      fail(member, error)
    } finally {
      member.isBusy = false
    }
  }

  /** Puts a tenant to sleep if there is nothing to do for it. What runs goes on until that is known. */
  async function rest(member: Member<S>): Promise<void> {
    if (member.isBusy || stopping.signal.aborted) return
    member.isBusy = true
    try {
      if (await hasWork(member)) {
        member.activeAt = performance.now()
        return
      }
      await member.running?.stop()
      member.running = undefined
    } catch (error) {
      fail(member, error)
    } finally {
      member.isBusy = false
    }
  }

  async function hasWork(member: Member<S>): Promise<boolean> {
    const { log, consumers } = member.instance
    const names = consumers.list().map(({ name }) => name)
    // A hint that comes during the look makes it worthless.
    member.asleepAt = 0
    const { head, isIdle, nextInMs } = await abortable(lookAt(log, names), stopping.signal)
    member.dueAt = nextInMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + nextInMs
    if (!isIdle || member.asleepAt === undefined || (nextInMs !== undefined && nextInMs <= restMs)) {
      member.asleepAt = undefined
      return true
    }
    member.asleepAt = head
    return false
  }

  function fail(member: Member<S>, error: unknown): void {
    if (stopping.signal.aborted) return
    member.asleepAt = undefined
    member.notBefore = performance.now() + delay(defaultBackoff, ++member.failures)
    if (isRillflowError(error, 'tenant_not_found')) return
    onFailure?.(member.instance.tenant, error)
  }

  async function dismiss([tenant, member]: [string, Member<S>]): Promise<void> {
    members.delete(tenant)
    await leave(member)
  }

  async function leave(member: Member<S>): Promise<void> {
    member.unhear()
    await member.running?.stop()
    member.running = undefined
  }
}
