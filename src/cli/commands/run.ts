/**
 * `rillflow run`: runs everything in the configuration in one process, until Ctrl-C.
 *
 *     store.start() ──► a runner: projections, processors, subscriptions, handlers, schedules, snapshots, upkeep
 *                         └── the first Ctrl-C lets all of them complete their running work
 *
 *     --once          ends when there is nothing left to do now
 *     tenants         one process runs all tenants of a store, also those that are created later
 *     --health-bind   /health and /metrics for probes and Prometheus
 *
 * Guarantees:
 * - Several processes may run the same configuration: they share the work and take over from each other.
 * - /metrics cannot be reached from other machines without a token; this is checked before the store is opened.
 *
 * What can fail: the configuration has nothing to run (`NothingRegistered`). With --once, a tenant that fails does not stop the others.
 */

import type { Snapshotter } from '../../aggregates/snapshotter.ts'
import type { Runner } from '../../consumers/runners/runner.ts'
import { onAbort, sleep, throwIfAborted } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { everyItem } from '../../core/page.ts'
import { isLoopback } from '../../server/access.ts'
import type { StoreServer } from '../../server/server.ts'
import type { Store, TenantedStore } from '../../store.ts'
import type { HandlerDescription } from '../../workflows/insight/handlers.ts'
import {
  type Command,
  defineCommand,
  type ExitCode,
  type Invocation,
  type Opened,
  type OpenedTenancy,
} from '../command.ts'
import { count } from '../output/amount.ts'
import { type Output, warningLogger } from '../output/output.ts'
import { NothingRegistered, WrongUsage } from '../report-error.ts'
import { createSnapshotters } from './snapshots.ts'
import { workerOptions } from './workflows.ts'

/** Also options of `rillflow dev`. */
export const healthOptions = {
  healthBind: {
    kind: 'text',
    value: 'HOST:PORT',
    env: 'RILLFLOW_HEALTH_BIND',
    summary: 'Answer /health/live, /health/ready and /metrics there; port 0 takes a free port',
  },
  token: {
    kind: 'text',
    value: 'TOKEN',
    env: 'RILLFLOW_TOKEN',
    summary:
      'The token that /metrics requires, needed if other machines can reach it; prefer the variable, because other users of this machine can see a flag',
  },
} as const

export const run: Command = defineCommand({
  description:
    'Several processes may run the same configuration: they share the work and take over from each other. If the store has tenants, it runs all of them, also those that are created later; with --tenant it runs one.',
  options: {
    once: { kind: 'flag', summary: 'End when there is nothing left to do now: for a cron job' },
    ...workerOptions,
    standby: { kind: 'flag', summary: 'Run nothing while another runner with a name does; needs --name' },
    ...healthOptions,
  },
  examples: [
    'rillflow run',
    'rillflow run --once',
    'rillflow run --name west-1 --standby',
    'rillflow run --health-bind 127.0.0.1:9464',
  ],
  async run({ out, open, config, options, signal }) {
    const address = parseAddress(options)
    const snapshotters = new Map<Store, Snapshotter[]>()
    const opened = await open({
      ...{ logger: warningLogger(out), create: true },
      register: (store, storeConfig) => void snapshotters.set(store, createSnapshotters(store, storeConfig)),
    })
    const { tenancy, store } = opened
    const workFor = async (tenantStore: Store): Promise<Work> => {
      const work = await workOf({ ...opened, store: tenantStore }, snapshotters.get(tenantStore) ?? [])
      if (work.summary.length > 0) return work
      const what = 'projections, handlers, schedules, snapshotters or subscriptions'
      throw new NothingRegistered({ what, path: (await config())?.path })
    }
    if (tenancy !== undefined && !tenancy.isOneTenant) {
      const openedTenants = { ...opened, tenancy, workFor }
      if (options.once) return runTenantsOnce(openedTenants, { out, signal })
      if (address !== undefined) await startHealth(store, address, out)
      await runTenants(openedTenants, { out, signal, options })
      return undefined
    }
    const work = await workFor(store)
    if (options.once) {
      const result = await runOnce(opened, work, signal)
      const { events, snapshots } = result
      out.print(result, () => `Done: ${count(events, 'event')} applied, ${count(snapshots, 'snapshot')} written.`)
      return undefined
    }
    if (address !== undefined) await startHealth(store, address, out)
    const runner = await startRunner(store, options)
    out.note(`Running ${work.summary.join(', ')}. Press Ctrl-C to stop.`)
    await runUntilAborted(runner, signal)
    return undefined
  },
})

/** What there is to run in one store. */
export interface Work {
  /** For people: `2 projections (orders, sales)`. */
  readonly summary: readonly string[]
  readonly needsWorker: boolean
  readonly snapshotters: readonly Snapshotter[]
}

export async function workOf(
  { store, config }: Pick<Opened, 'store' | 'config'>,
  snapshotters: readonly Snapshotter[],
): Promise<Work> {
  const { items } = await store.consumers.list({ kind: 'projection', limit: 1_000 })
  const projections = items.filter(({ isRegistered }) => isRegistered)
  await store.workflows.sync()
  const schedules = (await store.workflows.schedules.list()).items.filter(({ isHere }) => isHere)
  const handlers = store.workflows.handlers.registered()
  const groups: [string, readonly string[]][] = [
    ['projection', projections.map(({ name }) => name)],
    ['snapshotter', snapshotters.map(({ name }) => name)],
    ['handler', handlers],
    ['schedule', schedules.map(({ name }) => name)],
    ['processor', (config.processors ?? []).map(({ name }) => name)],
    ['subscription', (config.subscriptions ?? []).map(({ name }) => name)],
  ]
  const summary = groups
    .filter(([, names]) => names.length > 0)
    .map(([noun, names]) => `${count(names.length, noun)} (${names.join(', ')})`)
  return { summary, needsWorker: handlers.length + schedules.length > 0, snapshotters }
}

export function startRunner(
  store: Store,
  {
    name,
    standby,
    concurrency,
  }: {
    readonly concurrency: number
    readonly name?: string | undefined
    readonly standby?: boolean | undefined
  },
): Promise<Runner> {
  return store.start({ name, standby, concurrency })
}

export async function runUntilAborted(runner: Runner, signal: AbortSignal): Promise<void> {
  await new Promise<void>(resolve => onAbort(signal, resolve))
  await runner.stop()
}

interface RanOnce {
  readonly events: number
  readonly snapshots: number
}

/** Runs one store until there is nothing left to do now. Handlers run first, because the others apply what they emit. */
async function runOnce(
  opened: Pick<Opened, 'store' | 'config'>,
  { needsWorker, snapshotters }: Work,
  signal: AbortSignal,
): Promise<RanOnce> {
  const { store } = opened
  if (needsWorker) await runHandlersUntilIdle(store, signal)
  let snapshots = 0
  for (const snapshotter of snapshotters) snapshots += await snapshotter.runUntilIdle({ signal })
  const events = await store.consumers.runUntilIdle(undefined, { signal })
  return { events, snapshots }
}

const pollMs = 50

/** Until the whole log has been dispatched and no workflow is running. A workflow that waits for a time does not count. */
async function runHandlersUntilIdle(store: Store, signal: AbortSignal): Promise<void> {
  const { dispatcherName } = await import('../../workflows/routes.ts')
  const runner = await store.start({ only: ['handlers', 'schedules'] })
  try {
    await store.consumers.waitFor(dispatcherName, await store.events.head(), { signal })
    // A new handler may still have to be given events that were dispatched before it existed.
    while ((await store.workflows.handlers.list()).items.some(isCatchingUp)) await sleep(pollMs, { signal })
    while ((await store.workflows.list({ state: 'running', limit: 1 })).items.length > 0)
      await sleep(pollMs, { signal })
  } finally {
    await runner.stop()
  }
}

function isCatchingUp({ isBackfilling, pausedAt, retiredAt }: HandlerDescription): boolean {
  return isBackfilling && pausedAt === undefined && retiredAt === undefined
}

interface OpenedTenants extends Pick<Opened, 'config' | 'store'> {
  readonly tenancy: OpenedTenancy
  /** Fails if there is nothing to run. */
  workFor(store: Store): Promise<Work>
}

/** A tenant that fails does not stop the others. */
async function runTenantsOnce(
  { tenancy, config, workFor }: OpenedTenants,
  { out, signal }: Pick<Invocation, 'out' | 'signal'>,
): Promise<ExitCode> {
  const names = (await everyItem(tenancy.tenants.list)).map(({ tenant }) => tenant)
  const total = { tenants: names.length, events: 0, snapshots: 0 }
  const failed: { tenant: string; error: string }[] = []
  for (const tenant of names) {
    throwIfAborted(signal)
    try {
      const store = await tenancy.storeOf(tenant)
      const { events, snapshots } = await runOnce({ store, config }, await workFor(store), signal)
      total.events += events
      total.snapshots += snapshots
    } catch (error) {
      if (!isRillflowError(error) || error.code === 'aborted' || error.code === 'nothing_registered') throw error
      failed.push({ tenant, error: error.message })
    }
  }
  out.print({ ...total, failed }, style => {
    const failures = failed.map(({ tenant, error }) => `${style.colour.red(tenant)}: ${error}`)
    const result = `${count(total.events, 'event')} applied, ${count(total.snapshots, 'snapshot')} written`
    return [...failures, `Done for ${count(names.length - failed.length, 'tenant')}: ${result}.`].join('\n')
  })
  return failed.length === 0 ? 0 : 1
}

/** Runs all tenants: those that have work share the concurrency of one runner. */
async function runTenants(
  { tenancy: { tenants, storeOf }, store, workFor }: OpenedTenants,
  {
    out,
    signal,
    options: { name, standby, concurrency },
  }: Pick<Invocation, 'out' | 'signal'> & {
    readonly options: {
      readonly name: string | undefined
      readonly standby: boolean
      readonly concurrency: number
    }
  },
): Promise<void> {
  const onFailure = (tenant: string, error: unknown): void =>
    out.note(`${tenant === '*' ? 'Running the tenants' : `Running tenant ${tenant}`} has failed: ${String(error)}`)
  const names = (await everyItem(tenants.list)).map(({ tenant }) => tenant)
  const { summary } = names[0] === undefined ? { summary: [] } : await workFor(await storeOf(names[0]))
  const runner = await (store as TenantedStore).start({ name, standby, concurrency, onFailure })
  const work = summary.length === 0 ? 'everything in the configuration' : summary.join(', ')
  const whose = `${count(names.length, 'tenant')}, and for tenants that are created later`
  out.note(`Running ${work} for ${whose}. Press Ctrl-C to stop.`)
  await new Promise<void>(resolve => onAbort(signal, resolve))
  await runner.stop()
}

export interface Address {
  readonly host: string
  readonly port: number
  readonly token: string | undefined
}

export function parseAddress({
  healthBind,
  token,
}: {
  readonly healthBind: string | undefined
  readonly token: string | undefined
}): Address | undefined {
  if (healthBind === undefined) return undefined
  const [, ipv6, name, digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(healthBind) ?? []
  const [host, port] = [ipv6 ?? name, Number(digits)]
  if (host === undefined || !(port <= 65_535))
    throw new WrongUsage({
      reason: `--health-bind must be HOST:PORT, not ${JSON.stringify(healthBind)}`,
      hint: '--health-bind 127.0.0.1:9464',
    })
  if (token === undefined && !isLoopback(host))
    throw new WrongUsage({
      reason: `--health-bind ${healthBind} can be reached from other machines, so /metrics needs a token`,
      hint: '--token TOKEN, or RILLFLOW_TOKEN in the environment',
    })
  return { host, port, token }
}

export async function startHealth(store: Store, address: Address, out: Output): Promise<StoreServer> {
  const server = await store.server(address)
  out.note(`Health and metrics: ${server.url}/health/ready, ${server.url}/metrics`)
  return server
}
