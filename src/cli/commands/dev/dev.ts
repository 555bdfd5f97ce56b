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
import { basename, relative } from 'node:path'
import { isRillflowError } from '../../../core/errors.ts'
import { sleep } from '../../../core/lifecycle.ts'
import type { StoreServer } from '../../../server/server.ts'
import type { Store } from '../../../store.ts'
import { type Command, defineCommand, type Invocation, type Opened } from '../../command.ts'
import { findConfig } from '../../config.ts'
import { hasParent, isToStartAgain } from '../../interrupt.ts'
import { count, digits } from '../../output/amount.ts'
import { complaints, type Output, type Style } from '../../output/output.ts'
import { eventLine } from '../events.ts'
import {
  type Bind,
  bindOf,
  healthOptions,
  type Parts,
  partsOf,
  startHealth,
  startTogether,
  untilEnded,
} from '../run.ts'
import { snapshottersOf } from '../snapshots.ts'
import { readStatus, type Status } from '../status.ts'
import { activityLine, workerOptions } from '../workflows.ts'
import { runAgainOnChange } from './restart.ts'

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

// What happens, as it happens: every event, what fails, and now and then how it goes as a whole.

type Around = Pick<Invocation, 'out' | 'signal'>

const figuresMs = 5_000

/** Until the signal aborts. */
export async function showLive(opened: Opened, after: bigint, around: Around): Promise<void> {
  await Promise.all(
    [showEvents(opened, after, around), showFailures(opened, around), showFigures(opened, around)].map(showing =>
      showing.catch((error: unknown) => {
        if (!(around.signal.aborted && isRillflowError(error, 'aborted'))) throw error
      }),
    ),
  )
}

async function showEvents({ store }: Opened, after: bigint, { out, signal }: Around): Promise<void> {
  for await (const event of store.events.tail({ after, signal })) out.line({ event }, style => eventLine(style, event))
}

async function showFailures({ store }: Opened, { out, signal }: Around): Promise<void> {
  for await (const activity of store.workflows.watch({ kinds: ['failed', 'parked', 'cancelled'], signal }))
    out.line({ activity }, style => `${style.colour.red('!'.padStart(6))}  ${activityLine(style, activity)}`)
}

async function showFigures(opened: Opened, { out, signal }: Around): Promise<void> {
  for (;;) {
    await sleep(figuresMs, { signal })
    const status = await readStatus(opened)
    out.line({ status }, style => figuresLine(style, status))
  }
}

/** `42 events · orders at #42 · 9 workflows settled, 1 active · 2 dead letters` */
function figuresLine({ colour }: Style, { log, consumers, workflows, deadLetters }: Status): string {
  const letters = count(deadLetters.open, 'dead letter')
  const told = [
    `${digits(log.head)} positions`,
    ...consumers.map(({ name, checkpoint }) => `${name} at #${checkpoint ?? 0}`),
    `${count(workflows.settled, 'workflow')} settled, ${digits(workflows.active)} active`,
    deadLetters.open === 0 ? letters : colour.red(letters),
  ]
  return colour.dim(`${'–'.padStart(6)}  ${told.join(' · ')}`)
}

// What to try next, as lines that can be copied and work where they are said to.

export interface Beginning {
  readonly opened: Opened
  readonly parts: Parts
  readonly url: string
  readonly isShop: boolean
}

export function beginning(style: Style, { opened, parts, url, isShop }: Beginning): string {
  const { bold, cyan, dim } = style.colour
  const { store, where, isInMemory } = opened
  const what = parts.all.length === 0 ? 'nothing of a configuration' : parts.all.join(', ')
  return [
    '',
    `${bold(isShop ? 'The shop' : 'Your store')} is open: ${where}, schema ${store.schema.name}. Ctrl-C ends it.`,
    dim(`Running ${what}.`),
    '',
    'In a second terminal:',
    `  ${cyan(`curl -s ${url}/health/ready`)}`,
    `  ${cyan(`curl -s ${url}/metrics | grep rillflow_consumer_lag`)}`,
    ...(store.engine === 'postgres'
      ? commandsOf(style, opened)
      : [dim(isInMemory ? 'Other commands cannot reach a store in memory.' : embedded)]),
    ...(isShop ? ['', `A configuration of your own: ${cyan(`${program()} init`)}`] : []),
    '',
  ].join('\n')
}

const embedded = 'Other commands after Ctrl-C, as one process has an embedded store; at once with --url of a server.'

/** Of an embedded store, which one process has at a time. */
export function afterwards(style: Style, opened: Opened): string {
  if (opened.isInMemory) return 'Ended. Nothing is kept of a store in memory.'
  if (opened.store.engine === 'postgres') return 'Ended. Nothing is lost: the next start goes on here.'
  return [
    'Ended. Nothing is lost: the next start goes on here. The store is free now for other commands:',
    ...commandsOf(style, opened),
  ].join('\n')
}

function commandsOf({ colour }: Style, { store }: Opened): string[] {
  const { name } = store.schema
  const flags = name === 'rillflow' ? '' : ` --schema ${name}`
  return ['status', 'events tail', 'workflows list', 'dead-letters list'].map(
    each => `  ${colour.cyan(`${program()} ${each}${flags}`)}`,
  )
}

/** As it was called: from a clone the file itself, elsewhere by the name of the package. */
function program(): string {
  const [, script = ''] = process.argv
  return basename(script) === 'rillflow' ? 'npx rillflow' : `node ${relative('', script)}`
}
