/**
 * `rillflow dev`: the store, a daemon, a worker, the health endpoint and a live tail in one process, to develop with.
 *
 *     configuration of one's own, or `shop.ts` ─► open, synced ─► run/together ─► live: events · failures · how it goes
 *                                                             └─► run/health         next: what to try in a second terminal
 *
 * A configuration of one's own is run in a process below this one, anew whenever code beside it changes: see `again.ts`.
 *
 * Guarantees: the shop is in a schema of its own and never writes into another. Ctrl-C is the way to end it, so it ends with 0.
 *
 * What can fail: an embedded store is one process's at a time, so commands in a second terminal have to wait for the end of
 * this one, and are told so; on a server they need not.
 */
import { existsSync } from 'node:fs'
import { isRillflowError } from '../../core/errors.ts'
import type { StoreServer } from '../../server/server.ts'
import type { Store } from '../../store.ts'
import { type Command, defineCommand } from '../command.ts'
import { complaints } from '../complaints.ts'
import { findConfig } from '../configuration.ts'
import { hasParent, isToStartAgain } from '../interrupt.ts'
import type { Output } from '../output/output.ts'
import { type Bind, bindOf, healthOptions, startHealth } from '../run/health.ts'
import { partsOf } from '../run/parts.ts'
import { startTogether, untilEnded } from '../run/together.ts'
import { snapshottersOf } from '../snapshots/snapshotters.ts'
import { workerOptions } from '../workflows/worker.ts'
import { runAgainOnChange } from './again.ts'
import { showLive } from './live.ts'
import { afterwards, beginning } from './next.ts'

export const devCommand: Command = defineCommand({
  description:
    'Runs all that the configuration has, brings the schema up to date first, and shows events, failures and how it goes as it happens; with --json as NDJSON. Starts again when the configuration changes, or other code in its folder and below. Without a configuration a small shop is run, in the schema shop: orders are placed, charged, checked and shipped, and a few fail.',
  options: {
    memory: { kind: 'flag', summary: 'An embedded store in memory: nothing is kept, nor from one start to the next' },
    ...healthOptions,
    concurrency: workerOptions.concurrency,
  },
  examples: [
    'rillflow dev',
    'rillflow dev --memory',
    'rillflow dev --url postgres://localhost/shop',
    'rillflow dev --json | jq .event.type',
  ],
  async run({ out, open, config, place, options, signal }) {
    const bind = bindOf(options)
    const path = findConfig(place, process.cwd())
    if (path !== undefined && existsSync(path) && !hasParent()) return runAgainOnChange(path, { out, signal })
    const own = await config()
    out.note('Opening the store … (the first time takes a few seconds)')
    // What fails is in the lines themselves.
    const logger = { ...complaints(out), warn() {} }
    const { shopConfig } = await import('./shop.ts')
    const opened = await open({ fallback: shopConfig, creates: true, migrate: true, logger })
    if (signal.aborted) return 0
    const { store, where } = opened
    const parts = await partsOf(opened, snapshottersOf(store, opened.config))
    const { url } = await startSomewhere(store, bind, out)
    const after = (await store.events.settled()).settled
    const running = await startTogether(opened, parts, { out, concurrency: options.concurrency })
    out.line({ ready: { url, where, schema: store.schema.name, running: parts.all } }, style =>
      beginning(style, { opened, parts, url, isShop: own === undefined }),
    )
    await Promise.all([untilEnded(running, signal), showLive(opened, after, { out, signal })])
    if (!isToStartAgain(signal)) out.note(style => afterwards(style, opened))
    return 0
  },
})

const usual: Bind = { host: '127.0.0.1', port: 9464, token: undefined }

/** Where it was asked for; otherwise at the usual port, or at a free one if somebody has that. */
async function startSomewhere(store: Store, bind: Bind | undefined, out: Output): Promise<StoreServer> {
  if (bind !== undefined) return startHealth(store, bind, out)
  try {
    return await startHealth(store, usual, out)
  } catch (error) {
    if (!isRillflowError(error, 'invalid_option')) throw error
    return startHealth(store, { ...usual, port: 0 }, out)
  }
}
