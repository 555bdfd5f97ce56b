/**
 * A user's folder: the package in its node_modules, a configuration, and the built program run in it.
 *
 *     const shop = await openFolder({ config, seed: store => … })       a store with data, deleted after the tests
 *     const { code, stdout, stderr } = await shop.run('events tail --json')
 *
 * On a server the store has its own schema, which the environment names. Otherwise it is embedded in the folder. One process
 * runs the lines of a folder one after the other, because loading the program takes longer than a command. These lines get a
 * process each: lines that run until Ctrl-C, lines with their own environment, and on a server lines that are shown as text.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, expect } from 'vitest'
import { openStore, type Store } from '../../src/store.ts'
import { copyImage, copyStore, shortLived } from '../support/embedded.ts'
import { engine, freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { type Ended, type OneProcess, startOneProcess } from './one-process.ts'

export const onServer: boolean = engine !== 'pglite'

/** The first embedded store of a worker takes seconds, on a busy machine many. */
export const patienceMs = 180_000

export interface Folder {
  readonly path: string
  /** The cache folder of the program, so that the tests do not write into that of the user. */
  readonly cache: string
  /** Runs a line; words with spaces in them come as a list. */
  run(line: string | readonly string[], options?: RunOptions): Promise<Ended>
  /** Runs a line as text and as JSON, expects exit code 0, and compares what it prints. */
  shows(line: string | readonly string[], expected: Shown): Promise<void>
  start(line: string | readonly string[]): Running
  /** Opens the store for the duration of `work`. */
  use<T>(work: (store: Store) => Promise<T>): Promise<T>
}

/** With any of them the line runs in a separate process. */
export interface RunOptions {
  readonly input?: string
  readonly env?: Readonly<Record<string, string>>
}

export interface Shown {
  /** Each must be in the text. */
  readonly text: readonly (string | RegExp)[]
  /** As `toMatchObject` takes it; a list of them for NDJSON. */
  readonly json: object
  readonly isNdjson?: boolean
}

export interface Running {
  readonly ended: Promise<Ended>
  stdout(): string
  stderr(): string
  /** Default: SIGINT. */
  interrupt(signal?: 'SIGINT' | 'SIGTERM' | 'SIGHUP'): void
}

export async function openFolder({
  config,
  seed,
  empty = false,
}: {
  config?: string
  seed?: (store: Store) => Promise<unknown>
  empty?: boolean
} = {}): Promise<Folder> {
  const path = await mkdtemp(join(tmpdir(), 'rf-cli-'))
  await mkdir(join(path, 'node_modules'))
  await symlink(resolve('.'), join(path, 'node_modules', 'rillflow'))
  if (config !== undefined) await writeFile(join(path, 'rillflow.config.mjs'), config)
  const schema = freshSchema()
  const place = onServer ? { url: postgresUrl(), schema } : { folder: join(path, '.rillflow') }
  const cache = join(path, 'node_modules', '.cache')
  if (!onServer) {
    await copyImage(cache)
    if (!empty) await copyStore(place.folder!)
  }
  const use: Folder['use'] = async work => {
    const store = await openStore({ ...place, migrate: true })
    try {
      return await work(store)
    } finally {
      await store.close()
    }
  }
  if (!empty) await use(async store => seed?.(store))
  afterAll(async () => {
    await rm(path, { recursive: true, force: true })
    if (onServer) await (await openDatabase()).transaction(tx => tx.query(`drop schema if exists "${schema}" cascade`))
  })
  const given = onServer ? { DATABASE_URL: postgresUrl(), RILLFLOW_SCHEMA: schema } : {}
  return withRuns({ path, cache }, given, use)
}

function withRuns(
  { path, cache }: Pick<Folder, 'path' | 'cache'>,
  place: Record<string, string>,
  use: Folder['use'],
): Folder {
  const children = new Set<ChildProcess>()
  let together: OneProcess | undefined
  afterAll(() => {
    together?.kill()
    // A failed test may have left some running.
    for (const child of children) child.kill('SIGKILL')
  })
  const { DATABASE_URL, FORCE_COLOR, NO_COLOR, ...rest } = process.env
  const environment = { ...rest, LANG: 'C.UTF-8', XDG_CACHE_HOME: cache, ...place }
  const begin = (line: string | readonly string[], { input, env }: RunOptions = {}): Running => {
    const command = [...shortLived, 'node_modules/rillflow/dist/cli/cli.js', ...wordsOf(line)]
    const child = spawn(process.execPath, command, {
      cwd: path,
      env: { ...environment, ...env },
    })
    let [stdout, stderr] = ['', '']
    child.stdout.on('data', chunk => {
      stdout += chunk
    })
    child.stderr.on('data', chunk => {
      stderr += chunk
    })
    child.stdin.end(input ?? '')
    children.add(child)
    child.on('close', () => children.delete(child))
    const ended = new Promise<Ended>(done => child.on('close', code => done({ code, stdout, stderr })))
    return { ended, stdout: () => stdout, stderr: () => stderr, interrupt: (signal = 'SIGINT') => child.kill(signal) }
  }
  const runTogether = (words: readonly string[]): Promise<Ended> => {
    together ??= startOneProcess({ cwd: path, env: environment, file: resolve('dist/cli/cli.js') })
    return together.run(words)
  }
  const run: Folder['run'] = (line, options) =>
    options === undefined ? runTogether(wordsOf(line)) : begin(line, options).ended

  return {
    path,
    cache,
    run,
    start: begin,
    use,
    async shows(line, { text, json, isNdjson = false }) {
      const words = wordsOf(line)
      const shown = await (onServer ? begin(words).ended : runTogether(words))
      expect(failureOf(shown), words.join(' ')).toBeUndefined()
      for (const each of text) expect(shown.stdout).toMatch(each instanceof RegExp ? each : literal(each))
      for (const each of ['\u001b', 'undefined', '[object']) expect(shown.stdout).not.toContain(each)

      const { stdout, ...ended } = await runTogether([...words, '--json'])
      expect(failureOf(ended), words.join(' ')).toBeUndefined()
      const lines = (): unknown =>
        stdout
          .trimEnd()
          .split('\n')
          .map(each => JSON.parse(each))
      expect(isNdjson ? lines() : JSON.parse(stdout)).toMatchObject(json)
    },
  }
}

function wordsOf(line: string | readonly string[]): readonly string[] {
  return typeof line === 'string' ? line.split(' ') : line
}

function failureOf({ code, stderr }: Omit<Ended, 'stdout'>): string | undefined {
  return code === 0 ? undefined : `${code}: ${stderr}`
}

function literal(text: string): RegExp {
  return new RegExp(text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'))
}

/** The configuration of a shop that has a bit of everything. */
export const shopConfig = `
import {
  defineAggregate, defineCollection, defineConfig, defineDocumentProjection, defineHandler, defineProjection,
  defineSchedule, defineSubscription, defineUpcaster,
} from 'rillflow'

const totals = defineProjection('order-totals', {
  tables: {
    order_totals: { columns: { stream: 'text', total: { type: 'numeric', default: 0 } }, primaryKey: ['stream'] },
  },
  retries: 0,
  on: {
    OrderPlaced(event, ctx) {
      if (event.data.total < 0) throw new Error('a negative total')
      return ctx.tx.query(
        'insert into ' + ctx.table('order_totals') + ' as t values ($1, $2) on conflict (stream) do update set total = t.total + excluded.total',
        [event.stream, event.data.total],
      )
    },
  },
})

const orders = defineDocumentProjection('orders', {
  initial: () => ({ total: 0 }),
  evolve: { OrderPlaced: (order, event) => ({ total: order.total + event.data.total }) },
})

const order = defineAggregate('order', {
  initial: () => ({ total: 0 }),
  evolve: (state, event) => ({ total: state.total + (event.data.total ?? 0) }),
  snapshots: { every: 3, lifecycle: 'async' },
})

const customers = defineCollection('customers', { indexes: ['email'] })

const pay = defineHandler('pay', {
  on: 'OrderPlaced',
  retries: 0,
  run(event, { emit }) {
    if (event.data.total > 1000) throw new Error('the card was refused')
    return emit('OrderPaid', {})
  },
})

export default defineConfig({
  // On a busy machine every statement is slow and would be logged.
  slowStatementMs: 60_000,
  projections: [totals, orders],
  collections: [customers],
  aggregates: [order],
  subscriptions: [
    defineSubscription('mailer', { types: ['OrderShipped'], run: event => console.log('mail for', event.stream) }),
  ],
  upcasters: [
    defineUpcaster('OrderCreated', { from: 1, to: 1, toType: 'OrderOpened', run: data => data }),
    defineUpcaster('OrderOpened', { from: 1, to: 2, run: data => data }),
  ],
  handlers: [pay],
  schedules: [defineSchedule('restock', { cron: '0 3 * * *', run: () => [] })],
})
`
