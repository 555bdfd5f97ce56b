/**
 * `rillflow run`: everything that the configuration has, in one process: projections and snapshotters in a daemon, handlers
 * and schedules in a worker, and the subscriptions. The first Ctrl-C drains all of them.
 *
 *     parts      what there is to run, of one store              together   all of it until Ctrl-C        (dev does that, too)
 *     once       until nothing is left that could be done now    tenants    the same for all tenants of a store that has them
 *     health     /health and /metrics beside it
 */
import type { Snapshotter } from '../../aggregates/snapshotter.ts'
import type { Store } from '../../store.ts'
import { type Command, defineCommand } from '../command.ts'
import { complaints } from '../complaints.ts'
import { count } from '../output/amount.ts'
import { snapshottersOf } from '../snapshots/snapshotters.ts'
import { NothingRegistered } from '../usage.ts'
import { workerOptions } from '../workflows/worker.ts'
import { bindOf, healthOptions, startHealth } from './health.ts'
import { runOnce } from './once.ts'
import { partsOf } from './parts.ts'
import { runTenants, runTenantsOnce } from './tenants.ts'
import { startTogether, untilEnded } from './together.ts'

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
