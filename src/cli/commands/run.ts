/**
 * `rillflow run`: everything that the configuration has, in one process: projections and snapshotters in a daemon, handlers
 * and schedules in a worker, and the subscriptions. The first Ctrl-C drains all of them.
 *
 *     parts      what there is to run, of one store              together   all of it until Ctrl-C        (dev does that, too)
 *     once       until nothing is left that could be done now    tenants    the same for all tenants of a store that has them
 *     health     /health and /metrics beside it
 */
import type { Snapshotter } from '../../aggregates/snapshotter.ts'
import { isRillflowError } from '../../core/errors.ts'
import { onAbort, sleep, throwIfAborted } from '../../core/lifecycle.ts'
import { isLoopback } from '../../server/access.ts'
import type { StoreServer } from '../../server/server.ts'
import type { Store } from '../../store.ts'
import type { RunningSubscription } from '../../subscriptions/consume.ts'
import type { HandlerDescription } from '../../workflows/insight/handlers.ts'
import { dispatcherName } from '../../workflows/routes.ts'
import {
  type Command,
  defineCommand,
  type ExitCode,
  type Invocation,
  type Opened,
  type OpenedTenancy,
} from '../command.ts'
import { count } from '../output/amount.ts'
import { complaints, type Output } from '../output/output.ts'
import { NothingRegistered, WrongUsage } from '../report-error.ts'
import { snapshottersOf } from './snapshots.ts'
import { workerOptions } from './workflows.ts'

// `--health-bind`: /health and /metrics beside what is run. Beyond this machine a token is asked for, before anything is opened.

export const healthOptions = {
  healthBind: {
    kind: 'text',
    value: 'HOST:PORT',
    env: 'RILLFLOW_HEALTH_BIND',
    summary: 'Answer /health/live, /health/ready and /metrics there; port 0 takes a free one',
  },
  token: {
    kind: 'text',
    value: 'TOKEN',
    env: 'RILLFLOW_TOKEN',
    summary: 'What /metrics asks for, needed beyond loopback; others of the machine can see a flag, but no variable',
  },
} as const

export interface Bind {
  readonly host: string
  readonly port: number
  readonly token: string | undefined
}

export function bindOf(given: {
  readonly healthBind: string | undefined
  readonly token: string | undefined
}): Bind | undefined {
  if (given.healthBind === undefined) return undefined
  const [, ipv6, name, digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(given.healthBind) ?? []
  const [host, port] = [ipv6 ?? name, Number(digits)]
  if (host === undefined || !(port <= 65_535))
    throw new WrongUsage({
      reason: `--health-bind must be HOST:PORT, not ${JSON.stringify(given.healthBind)}`,
      hint: '--health-bind 127.0.0.1:9464',
    })
  const { token } = given
  if (token === undefined && !isLoopback(host))
    throw new WrongUsage({
      reason: `--health-bind ${given.healthBind} listens beyond this machine, and /metrics is only for those who know a token`,
      hint: '--token TOKEN, or RILLFLOW_TOKEN in the environment',
    })
  return { host, port, token }
}

export async function startHealth(store: Store, bind: Bind, out: Output): Promise<StoreServer> {
  const server = await store.server(bind)
  out.note(`Health and metrics: ${server.url}/health/ready, ${server.url}/metrics`)
  return server
}

export const runCommand: Command = defineCommand({
  description:
    'Many processes may run the same configuration: they share the work, and take over from each other. Of a store with tenants all of them are run, also those that come later; --tenant runs one.',
  options: {
    once: { kind: 'flag', summary: 'End when nothing is left that could be done now: for a cron call' },
    ...workerOptions,
    standby: { kind: 'flag', summary: 'Let the consumers be while another node runs them; needs --node' },
    ...healthOptions,
  },
  examples: [
    'rillflow run',
    'rillflow run --once',
    'rillflow run --node west-1 --standby',
    'rillflow run --health-bind 127.0.0.1:9464',
  ],
  async run({ out, open, config, options, signal }) {
    const bind = bindOf(options)
    const snapshotters = new Map<Store, Snapshotter[]>()
    const opened = await open({
      ...{ logger: complaints(out), creates: true },
      register: (store, given) => void snapshotters.set(store, snapshottersOf(store, given)),
    })
    const { tenancy, store } = opened
    const partsFor = async (each: Store) => {
      const parts = await partsOf({ ...opened, store: each }, snapshotters.get(each) ?? [])
      if (parts.all.length > 0) return parts
      const what = 'projections, handlers, schedules, snapshotters or subscriptions'
      throw new NothingRegistered({ what, path: (await config())?.path })
    }
    if (tenancy !== undefined && !tenancy.isOne) {
      const given = { ...opened, tenancy, partsFor }
      if (options.once) return runTenantsOnce(given, { out, signal })
      if (bind !== undefined) await startHealth(store, bind, out)
      await runTenants(given, { out, signal, options })
      return undefined
    }
    const parts = await partsFor(store)
    if (options.once) {
      const done = await runOnce(opened, parts, signal)
      out.print(
        done,
        () => `Done: ${count(done.events, 'event')} applied, ${count(done.snapshots, 'snapshot')} written.`,
      )
      return undefined
    }
    if (bind !== undefined) await startHealth(store, bind, out)
    const running = await startTogether(opened, parts, { ...options, out })
    out.note(`Running ${parts.all.join(', ')}. Ctrl-C ends it.`)
    await untilEnded(running, signal)
    return undefined
  },
})

// What there is to run, of one store.

export interface Parts {
  /** Everything there is to run, for people. */
  readonly all: readonly string[]
  readonly hasWork: boolean
  readonly snapshotters: readonly Snapshotter[]
}

export async function partsOf(
  { store, config }: Pick<Opened, 'store' | 'config'>,
  snapshotters: readonly Snapshotter[],
): Promise<Parts> {
  const projections = (await store.projections.list()).flatMap(each => (each.isRegistered ? [each.name] : []))
  await store.workflows.register()
  const schedules = (await store.workflows.schedules.list()).flatMap(each => (each.isHere ? [each.name] : []))
  const handlers = store.workflows.registered()
  const groups: [string, readonly string[]][] = [
    ['projection', projections],
    ['snapshotter', snapshotters.map(each => each.name)],
    ['handler', handlers],
    ['schedule', schedules],
    ['subscription', Object.keys(config.subscriptions ?? {})],
  ]
  const all = groups
    .filter(([, names]) => names.length > 0)
    .map(([what, names]) => `${count(names.length, what)} (${names.join(', ')})`)
  return { all, hasWork: handlers.length + schedules.length > 0, snapshotters }
}

// A daemon, a worker and the subscriptions of one store, started and drained together.

export interface Together {
  /** Ends when a subscription does. */
  readonly ended: readonly Promise<void>[]
  stop(): Promise<void>
}

export interface TogetherOptions {
  readonly out: Output
  readonly concurrency: number
  readonly node?: string | undefined
  readonly standby?: boolean | undefined
}

export async function startTogether(
  opened: Pick<Opened, 'store' | 'config'>,
  { hasWork }: Pick<Parts, 'hasWork'>,
  { out, node, standby, concurrency }: TogetherOptions,
): Promise<Together> {
  const { store } = opened
  const onFailure = (name: string, error: unknown): void => out.note(`${name} has stopped: ${String(error)}`)
  const daemon = store.daemon({ node, standby, onFailure })
  const worker = hasWork ? store.workflows.worker({ concurrency, node }) : undefined
  await daemon.start()
  await worker?.start()
  const subscriptions = startSubscriptions(opened)
  return {
    ended: subscriptions.map(each => each.ended),
    async stop() {
      await Promise.all([daemon.stop(), worker?.stop(), ...subscriptions.map(each => each.stop())])
    },
  }
}

export async function untilEnded({ ended, stop }: Together, signal: AbortSignal): Promise<void> {
  const stopped = new Promise<void>(resolve => onAbort(signal, resolve))
  await Promise.race([stopped, ...ended])
  await stop()
}

export function startSubscriptions({ store, config }: Pick<Opened, 'store' | 'config'>): RunningSubscription[] {
  return Object.entries(config.subscriptions ?? {}).map(([name, options]) => store.subscribe(name, options))
}

// Until nothing is left that could be done now, of one store.

export interface RanOnce {
  readonly events: number
  readonly snapshots: number
}

/** Work first, because what handlers emit is applied by the others. */
export async function runOnce(
  opened: Pick<Opened, 'store' | 'config'>,
  parts: Parts,
  signal: AbortSignal,
): Promise<RanOnce> {
  const { store } = opened
  if (parts.hasWork) await workUntilIdle(store, signal)
  const events = await store.projections.runUntilIdle({ signal })
  let snapshots = 0
  for (const each of parts.snapshotters) snapshots += await each.runUntilIdle({ signal })
  const subscriptions = startSubscriptions(opened)
  try {
    await Promise.race([deliveredAll(opened, signal), ...subscriptions.map(each => each.ended)])
  } finally {
    await Promise.all(subscriptions.map(each => each.stop()))
  }
  return { events, snapshots }
}

const lookMs = 50

/** Until everything that is in the log now was dispatched, and no workflow is running. One that waits for a time does not count. */
async function workUntilIdle(store: Store, signal: AbortSignal): Promise<void> {
  const worker = store.workflows.worker()
  await worker.start()
  try {
    await store.projections.waitFor(dispatcherName, await store.events.head(), { signal })
    // The dispatcher is done with the log; a handler that begins before it was known may not have been given it yet.
    while ((await store.workflows.handlers()).some(isCatchingUp)) await sleep(lookMs, { signal })
    while ((await store.workflows.list({ state: 'running', limit: 1 })).workflows.length > 0)
      await sleep(lookMs, { signal })
  } finally {
    await worker.stop()
  }
}

function isCatchingUp({ isBackfilling, pausedAt, retiredAt }: HandlerDescription): boolean {
  return isBackfilling && pausedAt === undefined && retiredAt === undefined
}

async function deliveredAll({ store, config }: Pick<Opened, 'store' | 'config'>, signal: AbortSignal): Promise<void> {
  for (const [name, { group }] of Object.entries(config.subscriptions ?? {}))
    while (await isBehind(store, name, group)) await sleep(lookMs, { signal })
}

/** One that has only just begun may not be stored yet. */
async function isBehind(store: Store, name: string, group: string | undefined): Promise<boolean> {
  try {
    return (await store.subscriptions.status(name, group)).lag > 0n
  } catch (error) {
    if (isRillflowError(error, 'subscription_not_found')) return true
    throw error
  }
}

// All tenants in one process: one daemon and one worker's seats are shared by those that have something to do.

export interface OpenedForAll extends Pick<Opened, 'config'> {
  readonly tenancy: OpenedTenancy
  /** What there is to run of one; fails if that is nothing. */
  partsFor(store: Store): Promise<Parts>
}

type Around = Pick<Invocation, 'out' | 'signal'>

/** A tenant that fails does not stop the others. */
export async function runTenantsOnce(
  { tenancy, config, partsFor }: OpenedForAll,
  { out, signal }: Around,
): Promise<ExitCode> {
  const names = (await tenancy.tenants.list()).map(each => each.tenant)
  const total = { tenants: names.length, events: 0, snapshots: 0 }
  const failed: { tenant: string; error: string }[] = []
  for (const tenant of names) {
    throwIfAborted(signal)
    try {
      const store = await tenancy.storeOf(tenant)
      const { events, snapshots } = await runOnce({ store, config }, await partsFor(store), signal)
      total.events += events
      total.snapshots += snapshots
    } catch (error) {
      if (!isRillflowError(error) || error.code === 'aborted' || error.code === 'nothing_registered') throw error
      failed.push({ tenant, error: error.message })
    }
  }
  out.print({ ...total, failed }, style => {
    const told = `${count(total.events, 'event')} applied, ${count(total.snapshots, 'snapshot')} written`
    const troubles = failed.map(({ tenant, error }) => `${style.colour.red(tenant)}: ${error}`)
    return [...troubles, `Done for ${count(names.length - failed.length, 'tenant')}: ${told}.`].join('\n')
  })
  return failed.length === 0 ? 0 : 1
}

export interface TenantsRunOptions {
  readonly node: string | undefined
  readonly standby: boolean
  readonly concurrency: number
}

export async function runTenants(
  { tenancy: { tenants, storeOf }, config, partsFor }: OpenedForAll,
  { out, signal, options }: Around & { readonly options: TenantsRunOptions },
): Promise<void> {
  refuseSubscriptions(config)
  const { node, standby, concurrency } = options
  const onFailure = (tenant: string, error: unknown): void =>
    out.note(`something of ${tenant === '*' ? 'the tenants' : `tenant ${tenant}`} has failed: ${String(error)}`)
  const daemon = tenants.daemon({ node, standby, worker: { concurrency, node }, onFailure })
  const names = (await tenants.list()).map(each => each.tenant)
  const { all } = names[0] === undefined ? { all: [] } : await partsFor(await storeOf(names[0]))
  await daemon.start()
  const what = all.length === 0 ? 'what the configuration has' : all.join(', ')
  out.note(`Running ${what} for ${count(names.length, 'tenant')}, and for those to come. Ctrl-C ends it.`)
  await new Promise<void>(resolve => onAbort(signal, resolve))
  await daemon.stop()
}

/** Each would hold a connection and poll, for each tenant: that grows where nothing else does. */
function refuseSubscriptions({ subscriptions = {} }: Opened['config']): void {
  const names = Object.keys(subscriptions)
  if (names.length === 0) return
  throw new WrongUsage({
    reason: `Subscriptions (${names.join(', ')}) are run for one tenant at a time, and not for all of them together`,
    hint: 'rillflow run --tenant NAME, or rillflow run --once',
  })
}
