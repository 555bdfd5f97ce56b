/**
 * `rillflow dev`: everything for development in one process: it syncs the schema, runs the configuration, serves the console,
 * health and metrics, and shows events and failures as they happen.
 *
 *     configuration, or shop.ts ──► open, synced ──► store.start() ──► showLive: events, failures, a summary every 5 s
 *                                                └─► startHealth       introduction: commands to try in a second terminal
 *
 * With a configuration this runs in a child process, which is started again whenever code in its folder changes: `restart.ts`.
 *
 * Guarantees: the shop has a schema of its own and never writes into another one. Ctrl-C is the normal end, so the exit code
 * is 0. Other commands can use the store while `dev` runs, unless it is in memory.
 */
import { existsSync } from 'node:fs'
import { basename, relative } from 'node:path'
import { sleep } from '../../../core/abort.ts'
import { isRillflowError } from '../../../core/errors.ts'
import type { StoreServer } from '../../../server/server.ts'
import type { Store } from '../../../store.ts'
import { type Command, defineCommand, type Invocation, type Opened } from '../../command.ts'
import { findConfig } from '../../config.ts'
import { hasParent, isToStartAgain } from '../../interrupt.ts'
import { count, digits } from '../../output/amount.ts'
import { type Output, type Style, warningLogger } from '../../output/output.ts'
import { wrapped } from '../../output/table.ts'
import { eventLine } from '../events.ts'
import {
  type Address,
  healthOptions,
  parseAddress,
  runnerOptions,
  runUntilAborted,
  startHealth,
  type Work,
  workOf,
  workText,
} from '../run.ts'
import { readStatus, type Status } from '../status.ts'
import { activityLine } from '../workflow-text.ts'
import { restartOnChange } from './restart.ts'

export const dev: Command = defineCommand({
  description:
    'Brings the schema up to date, runs everything in the configuration, and shows events, failures and a summary as they happen; with --json as NDJSON. It starts again when the configuration or other code in its folder changes. Without a configuration it runs a small shop in the schema "shop": orders are placed, charged, checked and shipped, and a few fail.',
  options: {
    memory: { kind: 'flag', summary: 'Use an embedded store in memory: each start begins with an empty store' },
    ...runnerOptions,
    ...healthOptions,
  },
  examples: [
    'rillflow dev',
    'rillflow dev --memory',
    'rillflow dev --url postgres://localhost/shop',
    'rillflow dev --json | jq .event.type',
  ],
  async run({ out, open, config, location, options, signal }) {
    const address = parseAddress(options)
    const path = findConfig(location, process.cwd())
    if (path !== undefined && existsSync(path) && !hasParent()) return restartOnChange(path, { out, signal })
    const isShop = (await config()) === undefined
    out.note('Opening the store … (the first time takes a few seconds)')
    // Warnings are left out, because failures are in the live view.
    const logger = { ...warningLogger(out), warn() {} }
    const { shopConfig } = await import('./shop.ts')
    const opened = await open({ defaultConfig: shopConfig, create: true, migrate: true, logger, purpose: 'run' })
    if (signal.aborted) return 0
    const { store, where } = opened
    const { only, concurrency } = options
    const work = workOf(store, only)
    const { url } = await startHealthSomewhere(store, address, out)
    const after = (await store.events.settled()).settled
    const runner = await store.start({ only: only.length === 0 ? undefined : only, concurrency })
    out.line({ ready: { url, where, schema: store.schema.name, running: work } }, style =>
      introduction(style, { opened, work, url, isShop }),
    )
    await Promise.all([runUntilAborted(runner, signal), showLive(opened, after, { out, signal })])
    if (!isToStartAgain(signal)) out.note(conclusion(opened))
    return 0
  },
})

/** It is for development, so the console may do everything. */
const mayWrite = { console: { access: 'admin' } } as const

const defaultAddress: Address = { host: '127.0.0.1', port: 9464, token: undefined }

/** At the given address; without one at the default port, or at a free port if that one is used. */
async function startHealthSomewhere(store: Store, address: Address | undefined, out: Output): Promise<StoreServer> {
  if (address !== undefined) return startHealth(store, address, out, mayWrite)
  try {
    return await startHealth(store, defaultAddress, out, mayWrite)
  } catch (error) {
    if (!isRillflowError(error, 'invalid_option')) throw error
    return startHealth(store, { ...defaultAddress, port: 0 }, out, mayWrite)
  }
}

type Live = Pick<Invocation, 'out' | 'signal'>

/** Until the signal aborts. */
async function showLive(opened: Opened, after: number, live: Live): Promise<void> {
  const views = [showEvents(opened, after, live), showFailures(opened, live), showSummary(opened, live)]
  await Promise.all(
    views.map(view =>
      view.catch((error: unknown) => {
        if (!(live.signal.aborted && isRillflowError(error, 'aborted'))) throw error
      }),
    ),
  )
}

async function showEvents({ store }: Opened, after: number, { out, signal }: Live): Promise<void> {
  for await (const event of store.events.tail({ from: after, signal }))
    out.line({ event }, style => eventLine(style, event))
}

async function showFailures({ store }: Opened, { out, signal }: Live): Promise<void> {
  for await (const activity of store.workflows.watch({ kinds: ['failed', 'parked', 'cancelled'], signal }))
    out.line({ activity }, style => `${style.colour.red('!'.padStart(6))}  ${activityLine(style, activity, 8)}`)
}

const summaryMs = 5_000

async function showSummary(opened: Opened, { out, signal }: Live): Promise<void> {
  for (;;) {
    await sleep(summaryMs, { signal })
    const status = await readStatus(opened)
    out.line({ status }, style => summaryLine(style, status))
  }
}

/** `42 positions · orders at #42 · 9 workflows settled, 1 active · 2 dead letters`; less of the consumers where it is narrow. */
export function summaryLine({ colour, width = Number.POSITIVE_INFINITY }: Style, status: Status): string {
  const { log, consumers, workflows, deadLetters } = status
  const failed = count(deadLetters.open, 'dead letter')
  const slowest = Math.min(...consumers.map(({ checkpoint = 0 }) => checkpoint))
  const line = (followers: readonly string[], last: string): string => {
    const running = `${count(workflows.settled, 'workflow')} settled, ${digits(workflows.active)} active`
    return `${'–'.padStart(6)}  ${[count(log.head, 'position'), ...followers, running, last].join(' · ')}`
  }
  const forms = [
    consumers.map(({ name, checkpoint = 0 }) => `${name} at #${checkpoint}`),
    consumers.length === 0 ? [] : [`all from #${slowest}`],
    [],
  ]
  const followers = forms.find(each => line(each, failed).length <= width) ?? []
  return colour.dim(line(followers, deadLetters.open === 0 ? failed : colour.red(failed)))
}

/** The running parts, and lines to copy into a second terminal. */
function introduction(
  style: Style,
  { opened, work, url, isShop }: { opened: Opened; work: Work; url: string; isShop: boolean },
): string {
  const { bold, cyan, dim } = style.colour
  const { store, where, isInMemory } = opened
  const summary = workText(work) || 'nothing, because the configuration has nothing to run'
  const title = isShop ? 'The shop' : 'Your store'
  const opening = `${title} is open: ${where}, schema ${store.schema.name}. Press Ctrl-C to stop.`
  return [
    '',
    wrapped(opening, style.width, 0).replace(title, bold(title)),
    dim(wrapped(`Running ${summary}.`, style.width, 0)),
    `See it in a browser: ${bold(cyan(url))}`,
    '',
    'In a second terminal:',
    `  ${cyan(`curl -s ${url}/health/ready`)}`,
    `  ${cyan(`curl -s ${url}/metrics | grep rillflow_consumer_lag`)}`,
    ...(isInMemory ? [dim('Other commands cannot reach a store in memory.')] : commandLines(style, opened)),
    ...(isShop ? ['', `To write a configuration of your own: ${cyan(`${program()} init`)}`] : []),
    '',
  ].join('\n')
}

function conclusion({ isInMemory }: Opened): string {
  return isInMemory
    ? 'Stopped. The store was in memory, so its content is gone.'
    : 'Stopped. Nothing is lost: the next start continues here.'
}

function commandLines({ colour }: Style, { store }: Opened): string[] {
  const { name } = store.schema
  const flags = name === 'rillflow' ? '' : ` --schema ${name}`
  return ['status', 'events tail', 'workflows list', 'dead-letters list'].map(
    command => `  ${colour.cyan(`${program()} ${command}${flags}`)}`,
  )
}

/** The program as it was called: in a clone by its file, elsewhere by the name of the package. */
function program(): string {
  const [, script = ''] = process.argv
  return basename(script) === 'rillflow' ? 'npx rillflow' : `node ${relative('', script)}`
}
