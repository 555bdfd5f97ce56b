/**
 * `rillflow run`: `store.start()` in a process of its own, until Ctrl-C.
 *
 *     store.start() ──► a runner: projections, processors, subscriptions, snapshots, handlers, schedules, upkeep
 *                         └── the first Ctrl-C lets all of them complete their running work
 *
 *     --only          runs only some kinds
 *     --once          ends when there is nothing left to do now
 *     tenants         one process runs all tenants of a store, also those that are created later
 *     --health-bind   /health and /metrics for probes and Prometheus
 *
 * Guarantees:
 * - Several processes may run the same configuration: they share the work and take over from each other.
 * - /metrics cannot be reached from other machines without a token; this is checked before the store is opened.
 *
 * What can fail: the configuration has nothing to run (`NothingRegistered`). With --once, a tenant that fails does not stop
 * the others.
 */
import type { RunnableKind } from '../../consumers/runners/runnable.ts'
import type { Runner } from '../../consumers/runners/runner.ts'
import { onAbort, sleep, throwIfAborted } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { isLoopback } from '../../server/access/origin.ts'
import type { ServerOptions, StoreServer } from '../../server/server.ts'
import type { Store, TenantedStore } from '../../store.ts'
import type { HandlerDescription } from '../../workflows/insight/handlers.ts'
import { type Command, defineCommand, type ExitCode, type Invocation, type OpenedTenancy } from '../command.ts'
import { tenantNames } from '../every-tenant.ts'
import { count } from '../output/amount.ts'
import { type Output, warningLogger } from '../output/output.ts'
import { NothingRegistered, WrongUsage } from '../report-error.ts'

/** How one of each kind is called. */
const nouns: Readonly<Record<RunnableKind, string>> = {
  projections: 'projection',
  processors: 'processor',
  subscriptions: 'subscription',
  snapshots: 'snapshotter',
  handlers: 'handler',
  schedules: 'schedule',
  upkeep: 'upkeep',
}

/** Also options of `rillflow dev`. */
export const runnerOptions = {
  only: {
    kind: 'text',
    many: true,
    choices: ['projections', 'processors', 'subscriptions', 'snapshots', 'handlers', 'schedules', 'upkeep'],
    value: 'KIND',
    summary: 'Run only this kind',
  },
  concurrency: {
    kind: 'whole',
    value: 'COUNT',
    default: 16,
    env: 'RILLFLOW_CONCURRENCY',
    summary: 'The maximum number of handlers that run at the same time',
  },
} as const

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
      'The token that /metrics and the console require, needed if other machines can reach it; prefer the variable, because other users of this machine can see an option',
  },
} as const

export const run: Command = defineCommand({
  description:
    'Starts a runner, as store.start() does in a program. Several processes may run the same configuration: they share the work and take over from each other. If the store has tenants, it runs all of them, also those that are created later; with --tenant it runs one. It also gives inline projections the version and the lifecycle of the configuration.',
  options: {
    once: { kind: 'flag', summary: 'End when there is nothing left to do now: for a cron job' },
    ...runnerOptions,
    name: {
      kind: 'text',
      value: 'NAME',
      env: 'RILLFLOW_NAME',
      summary: 'The name of this runner, the same each time it is started',
    },
    standby: { kind: 'flag', summary: 'Run nothing while another runner with a name is active; needs --name' },
    paused: { kind: 'flag', summary: 'Run nothing until `rillflow runners promote NAME` is called; needs --name' },
    leaseMs: {
      kind: 'whole',
      value: 'MS',
      summary: 'The time after which other runners take over from this one if it sends no heartbeat. Default: 15000',
    },
    ...healthOptions,
  },
  examples: [
    'rillflow run',
    'rillflow run --once',
    'rillflow run --only handlers --only schedules',
    'rillflow run --name west-1 --standby',
    'rillflow run --health-bind 127.0.0.1:9464',
  ],
  async run({ out, open, config, options, signal }) {
    const { once, only, healthBind, token, ...rest } = options
    const address = parseAddress({ healthBind, token })
    refuseWithoutName(rest)
    const { tenancy, store } = await open({ logger: warningLogger(out), create: true, purpose: 'run' })
    const runnerOf = { ...rest, only: only.length === 0 ? undefined : only }
    const workIn = async (each: Store): Promise<Work> => {
      const work = workOf(each, only)
      if (workText(work) !== '') return work
      const what = only.length === 0 ? 'projections, subscriptions, handlers or schedules' : only.join(' or ')
      throw new NothingRegistered({ what, path: (await config())?.path })
    }
    if (tenancy !== undefined && !tenancy.isOneTenant) {
      if (once) return runTenantsOnce(tenancy, { out, signal, workIn })
      if (address !== undefined) await startHealth(store, address, out)
      const [first, ...others] = await tenantNames(tenancy.tenants)
      const work = first === undefined ? {} : await workIn(await tenancy.storeOf(first))
      const onFailure = (tenant: string, error: unknown): void =>
        out.note(`${tenant === '*' ? 'Running the tenants' : `Running tenant ${tenant}`} failed: ${String(error)}`)
      const runner = await (store as TenantedStore).start({ ...runnerOf, onFailure })
      const tenants = count(first === undefined ? 0 : others.length + 1, 'tenant')
      const what = workText(work) || 'everything in the configuration'
      out.note(`Running ${what} for ${tenants}, and for tenants that are created later. Press Ctrl-C to stop.`)
      await runUntilAborted(runner, signal)
      return undefined
    }
    const work = await workIn(store)
    if (once) {
      const events = await runOnce(store, work, signal)
      out.print({ events }, () => `Done: ${count(events, 'event')} applied.`)
      return undefined
    }
    if (address !== undefined) await startHealth(store, address, out)
    const runner = await store.start(runnerOf)
    out.note(`${startedText(runner, workText(work))} Press Ctrl-C to stop.`)
    await runUntilAborted(runner, signal)
    return undefined
  },
})

/** Only a name tells runners on standby apart, and only by its name can a runner be promoted. */
function refuseWithoutName({
  name,
  standby,
  paused,
}: {
  readonly name: string | undefined
  readonly standby: boolean
  readonly paused: boolean
}): void {
  const flag = standby ? '--standby' : paused ? '--paused' : undefined
  if (standby && paused) throw new WrongUsage({ reason: '--standby and --paused cannot be used together' })
  if (flag === undefined || name !== undefined) return
  throw new WrongUsage({
    reason: `${flag} needs --name, because only a runner with a name can be promoted`,
    hint: `rillflow run --name west-1 ${flag}`,
  })
}

/** The names of what a runner of the store runs, by kind. Upkeep has no names, so it is there only if the line names it. */
export type Work = Partial<Record<RunnableKind, readonly string[]>>

export function workOf(store: Store, only: readonly RunnableKind[]): Work {
  const registered = Object.entries(store.runners.registered()) as [RunnableKind, readonly string[]][]
  const isWanted = (kind: RunnableKind): boolean => only.length === 0 || only.includes(kind)
  const wanted = registered.filter(([kind, names]) => isWanted(kind) && names.length > 0)
  return { ...Object.fromEntries(wanted), ...(only.includes('upkeep') ? { upkeep: [] } : {}) }
}

/** `2 projections (orders, sales), 1 handler (pay)`; empty if there is nothing to run. */
export function workText(work: Work): string {
  return runnerOptions.only.choices
    .flatMap(kind => (work[kind] === undefined ? [] : [[nouns[kind], work[kind]] as const]))
    .map(([noun, names]) => (names.length === 0 ? noun : `${count(names.length, noun)} (${names.join(', ')})`))
    .join(', ')
}

function startedText({ role, name }: Runner, work: string): string {
  if (role === 'standby') return `Runner "${name}" is on standby. It runs ${work} when no other runner is active.`
  if (role === 'paused') return `Runner "${name}" is paused. To run ${work}: rillflow runners promote ${name}.`
  return `Running ${work}.`
}

export async function runUntilAborted(runner: Runner, signal: AbortSignal): Promise<void> {
  await new Promise<void>(resolve => onAbort(signal, resolve))
  await runner.stop()
}

/**
 * Runs one store until there is nothing left to do now, and returns how many events consumers have applied. Handlers run
 * first, because consumers apply the events that they emit. Consumers may append events for handlers, so both run again if
 * the log has grown meanwhile; the limit is for a log that other processes append to all the time.
 */
async function runOnce(store: Store, work: Work, signal: AbortSignal): Promise<number> {
  const handled = (['handlers', 'schedules'] as const).filter(kind => work[kind] !== undefined)
  const { projections = [], processors = [], snapshots = [], subscriptions = [] } = work
  let events = 0
  for (let pass = 1; pass <= maxPasses; pass++) {
    if (handled.length > 0) await runHandlersUntilIdle(store, handled, signal)
    const head = await store.events.head()
    for (const name of [...projections, ...processors, ...snapshots, ...subscriptions])
      events += await store.consumers.runUntilIdle(name, { signal })
    if (head === (await store.events.head())) break
  }
  if (work.upkeep !== undefined) await store.upkeep({ signal })
  return events
}

const maxPasses = 10
const pollMs = 50

/** Until the whole log has been dispatched and no workflow is running. A workflow that waits for a time does not count. */
async function runHandlersUntilIdle(
  store: Store,
  only: readonly ('handlers' | 'schedules')[],
  signal: AbortSignal,
): Promise<void> {
  const { dispatcherName } = await import('../../workflows/routes.ts')
  const runner = await store.start({ only })
  try {
    if (only.includes('handlers')) await store.consumers.waitFor(dispatcherName, await store.events.head(), { signal })
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

interface TenantsOnce extends Pick<Invocation, 'out' | 'signal'> {
  /** Fails if there is nothing to run. */
  workIn(store: Store): Promise<Work>
}

/** A tenant that fails does not stop the others. */
async function runTenantsOnce(tenancy: OpenedTenancy, { out, signal, workIn }: TenantsOnce): Promise<ExitCode> {
  const names = await tenantNames(tenancy.tenants)
  const failed: { tenant: string; error: string }[] = []
  let events = 0
  for (const tenant of names) {
    throwIfAborted(signal)
    try {
      const store = await tenancy.storeOf(tenant)
      events += await runOnce(store, await workIn(store), signal)
    } catch (error) {
      if (!isRillflowError(error) || error.code === 'aborted' || error.code === 'nothing_registered') throw error
      failed.push({ tenant, error: error.message })
    }
  }
  out.print({ tenants: names.length, events, failed }, style => {
    const failures = failed.map(({ tenant, error }) => `${style.colour.red(tenant)}: ${error}`)
    const done = `Done for ${count(names.length - failed.length, 'tenant')}: ${count(events, 'event')} applied.`
    return [...failures, done].join('\n')
  })
  return failed.length === 0 ? 0 : 1
}

export interface Address {
  readonly host: string
  readonly port: number
  readonly token: string | undefined
}

export function parseAddress(
  { healthBind, token }: { readonly healthBind: string | undefined; readonly token: string | undefined },
  option = '--health-bind',
): Address | undefined {
  if (healthBind === undefined) return undefined
  const [, ipv6, name, digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(healthBind) ?? []
  const [host, port] = [ipv6 ?? name, Number(digits)]
  if (host === undefined || !(port <= 65_535))
    throw new WrongUsage({
      reason: `${option} must be HOST:PORT, not ${JSON.stringify(healthBind)}`,
      hint: `${option} 127.0.0.1:9464`,
    })
  if (token === undefined && !isLoopback(host))
    throw new WrongUsage({
      reason: `${option} ${healthBind} can be reached from other machines, so /metrics needs a token`,
      hint: '--token TOKEN, or RILLFLOW_TOKEN in the environment',
    })
  return { host, port, token }
}

export async function startHealth(
  store: Store,
  address: Address,
  out: Output,
  options: Pick<ServerOptions, 'console'> = {},
): Promise<StoreServer> {
  const server = await store.server({ ...address, ...options })
  if (options.console !== undefined && options.console !== false) out.note(`Console: ${server.url}`)
  out.note(`Health and metrics: ${server.url}/health/ready, ${server.url}/metrics`)
  return server
}
