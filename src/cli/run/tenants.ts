/** All tenants in one process: one daemon and one worker's seats are shared by those that have something to do. */
import { isRillflowError } from '../../core/errors.ts'
import { onAbort, throwIfAborted } from '../../core/lifecycle.ts'
import type { Store } from '../../store.ts'
import type { ExitCode, Invocation, Opened, OpenedTenancy } from '../command.ts'
import { count } from '../output/amount.ts'
import { WrongUsage } from '../usage.ts'
import { runOnce } from './once.ts'
import type { Parts } from './parts.ts'

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
