/**
 * `rillflow projections`: read models, how far they have followed the log, and the work of bringing them up to date.
 *
 *     look       list · status · metrics
 *     control    pause · resume · reset · rebuild
 *     run        run-once · run-until-idle · run          for scripts and tests; `rillflow run` runs everything
 *
 * Commands that run a projection, and `rebuild`, need its code from the configuration. The others need only the database.
 *
 * What can fail: a projection that is not known; the error suggests the nearest name. Without code, commands that need it
 * fail with `NothingRegistered`.
 */
import type { RunResult } from '../../consumers/run/run.ts'
import { onAbort } from '../../core/abort.ts'
import { nearestName } from '../../core/name.ts'
import { kebabCase } from '../arguments.ts'
import {
  type Argument,
  type Commands,
  defineCommand,
  defineVerbs,
  type ExitCode,
  type Invocation,
  type Opened,
  type OpenOptions,
} from '../command.ts'
import { listCommand } from '../list-command.ts'
import { ago, count, digits, duration } from '../output/amount.ts'
import { type Output, warningLogger } from '../output/output.ts'
import { errorLine, lagOf, paintState, stateOf } from '../output/state.ts'
import { type Column, fields, table } from '../output/table.ts'
import { NothingFound, NothingRegistered } from '../report-error.ts'

const projection = {
  name: 'name',
  summary: 'The name of the projection',
  completes: 'projection',
} as const satisfies Argument

const oneProjection = {
  name: 'name',
  summary: 'Only this projection',
  completes: 'projection',
  optional: true,
} as const satisfies Argument

const list = listCommand({
  description: 'CODE is "here" if the configuration has the projection, and "elsewhere" if only the database knows it.',
  examples: ['rillflow projections list', 'rillflow projections list --json'],
  empty: 'There are no projections.',
  list: async store => (await store.consumers.list({ kind: 'projection', limit: 1_000 })).items,
  columns: () => [
    { title: 'PROJECTION', of: ({ name }) => name, cut: true, paint: (_, colour) => colour.cyan },
    {
      title: 'STATE',
      of: stateOf,
      paint: (status, colour) => paintState(stateOf(status), colour),
    },
    { title: 'CHECKPOINT', of: ({ checkpoint }) => checkpoint, right: true },
    { title: 'LAG', of: lagOf, right: true },
    { title: 'DEAD LETTERS', of: ({ deadLetters }) => deadLetters, right: true },
    {
      title: 'CODE',
      of: ({ isRegistered }) => (isRegistered ? 'here' : 'elsewhere'),
      paint: (_, colour) => colour.dim,
    },
  ],
})

const status = defineCommand({
  arguments: [projection],
  examples: ['rillflow projections status order-totals'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    const status = await store.consumers.status(name)
    out.print(status, style => {
      const state = stateOf(status)
      const { lease, retryInMs } = status
      return fields(style, {
        projection: style.colour.cyan(status.name),
        state: paintState(state, style.colour)(state),
        checkpoint: `${status.checkpoint} of ${status.head}`,
        lag: lagOf(status),
        'held by': lease === undefined ? undefined : `${lease.owner}, for ${duration(lease.expiresInMs)}`,
        'dead letters': status.deadLetters,
        failures: status.attempts === 0 ? undefined : `${status.attempts} in a row`,
        'next try': retryInMs === undefined ? undefined : `in ${duration(retryInMs)}`,
        'last error': errorLine(status.lastError),
        progressed: status.progressedAt === undefined ? undefined : ago(status.progressedAt, style.now),
      })
    })
  },
})

const metrics = defineCommand({
  arguments: [oneProjection],
  examples: ['rillflow projections metrics', 'rillflow projections metrics order-totals --json'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    const { items } = await store.consumers.list({ kind: 'projection', limit: 1_000 })
    const all = Object.fromEntries(
      items.map(({ name, lag, lagSeconds, deadLetters, attempts, isPaused }) => [
        name,
        { lag, lagSeconds, deadLetters, attempts, isPaused },
      ]),
    )
    if (name !== undefined && all[name] === undefined) {
      const nearest = nearestName(name, Object.keys(all))
      const hint = `rillflow projections metrics ${nearest ?? ''}`.trim()
      throw new NothingFound({ what: 'projection', given: name, hint })
    }
    const shown = name === undefined ? all : { [name]: all[name]! }
    const columns: Column<[string, (typeof all)[string]]>[] = [
      { title: 'PROJECTION', of: ([name]) => name, paint: (_, colour) => colour.cyan },
      { title: 'LAG', of: ([, { lag }]) => digits(lag), right: true },
      { title: 'LAG SECONDS', of: ([, { lagSeconds }]) => lagSeconds.toFixed(1), right: true },
      { title: 'FAILURES', of: ([, { attempts }]) => attempts, right: true },
      { title: 'DEAD LETTERS', of: ([, { deadLetters }]) => deadLetters, right: true },
      { title: 'PAUSED', of: ([, { isPaused }]) => (isPaused ? 'yes' : 'no') },
    ]
    out.print(shown, style => table(style, Object.entries(shown), columns, 'There are no projections.'))
  },
})

const pause = defineCommand({
  description: 'The running batch still ends. After it, no process applies events until the projection is resumed.',
  arguments: [projection],
  examples: ['rillflow projections pause order-totals'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.consumers.pause(name)
    out.print(await store.consumers.status(name), () => `Paused ${name}.`)
  },
})

const resume = defineCommand({
  description: 'The projection continues at once, even if it is waiting to retry after a failure.',
  arguments: [projection],
  examples: ['rillflow projections resume order-totals'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.consumers.resume(name)
    out.print(await store.consumers.status(name), () => `Resumed ${name}.`)
  },
})

const reset = defineCommand({
  description:
    'The read model is not changed, so events may be applied twice or left out. To fill it again from the log, rebuild it instead.',
  arguments: [
    projection,
    {
      name: 'position',
      summary: 'The projection continues after this position; 0 is the beginning of the log',
      kind: 'position',
    },
  ],
  examples: ['rillflow projections reset order-totals 0 --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { name, position } }) {
    const { store } = await open()
    const { checkpoint } = await store.consumers.status(name)
    const action = `move the checkpoint of ${name} from ${checkpoint} to ${position} without changing its read model`
    if (!(await confirm(action))) return
    await store.consumers.reset(name, position)
    out.print(await store.consumers.status(name), () => `Reset ${name} from ${checkpoint} to ${position}.`)
  },
})

const rebuild = defineCommand({
  description:
    'The old read model is used until the new one replaces it. A rebuild that was interrupted is resumed by the next call.',
  arguments: [projection],
  options: {
    restart: { kind: 'flag', summary: 'Discard what an interrupted rebuild has done' },
    switchMs: {
      kind: 'whole',
      value: 'MS',
      default: 600_000,
      summary: 'The maximum time to wait for table locks when the new read model replaces the old one',
    },
  },
  examples: ['rillflow projections rebuild order-totals'],
  async run({ out, arguments: { name }, options: { restart, switchMs }, signal, open, config }) {
    const { store } = await openWithProjections({ open, config })
    const bar = out.progress(`Rebuilding ${name}`)
    const rebuilt = await store.projections
      .rebuild(name, {
        ...{ restart, switchMs, signal },
        onProgress: ({ position, head }) => bar.update(position, head, 'position'),
      })
      .finally(() => bar.end())
    out.print({ projection: name, ...rebuilt }, style => {
      const { events, position, durationMs } = rebuilt
      const result = `${count(events, 'event')} in ${duration(durationMs)}, up to position ${position}`
      return `${style.colour.green('Rebuilt')} ${name}: ${result}.`
    })
  },
})

const runOnce = defineCommand({
  arguments: [oneProjection],
  examples: ['rillflow projections run-once', 'rillflow projections run-once order-totals'],
  async run({ out, arguments: { name }, signal, open, config }) {
    const { store, projectionNames } = await openWithProjections({ open, config })
    const batches: Record<string, RunResult> = {}
    for (const each of name === undefined ? projectionNames : [name])
      batches[each] = await store.consumers.runOnce(each, { signal })
    return reportBatches(out, batches)
  },
})

const runUntilIdle = defineCommand({
  description: 'Ends when there is nothing left to apply: for a cron job, or before a report.',
  arguments: [oneProjection],
  examples: ['rillflow projections run-until-idle', 'rillflow projections run-until-idle order-totals --json'],
  async run({ out, arguments: { name: only }, signal, open, config }) {
    const { store, projectionNames } = await openWithProjections({ open, config })
    const bar = out.progress('Applying')
    const totals: Record<string, RunResult> = {}
    let applied = 0
    try {
      for (const name of only === undefined ? projectionNames : [only]) {
        let batch: RunResult
        let count = 0
        do {
          batch = await store.consumers.runOnce(name, { signal })
          count += batch.count
          applied += batch.count
          bar.update(applied, undefined, 'event')
        } while (batch.result === 'processed')
        totals[name] = { ...batch, count }
      }
    } finally {
      bar.end()
    }
    return reportBatches(out, totals)
  },
})

const run = defineCommand({
  description:
    'Shares the projections with runners elsewhere. Use `rillflow run` to also run handlers and subscriptions.',
  examples: ['rillflow projections run'],
  async run({ out, signal, open, config }) {
    const options = { logger: warningLogger(out), create: true }
    const { store, projectionNames } = await openWithProjections({ open, config }, options)
    const names = projectionNames.join(', ')
    out.note(`Running ${count(projectionNames.length, 'projection')}: ${names}. Press Ctrl-C to stop.`)
    const runner = await store.start({ only: ['projections'] })
    await new Promise<void>(resolve => onAbort(signal, resolve))
    await runner.stop()
  },
})

export const projections: Commands = defineVerbs({
  list: ['Show all projections and how far they are', list],
  status: ['Show one projection in detail', status],
  metrics: ['Show lag and failures as numbers', metrics],
  pause: ['Stop applying events for now', pause],
  resume: ['Continue after a pause or a failure', resume],
  reset: ['Move the checkpoint of a projection', reset],
  rebuild: ['Fill a read model again from the log', rebuild],
  'run-once': ['Apply one batch of events', runOnce],
  'run-until-idle': ['Apply all events there are', runUntilIdle],
  run: ['Apply events until Ctrl-C', run],
})

/** Fails if the configuration has no projections. */
async function openWithProjections(
  { open, config }: Pick<Invocation, 'open' | 'config'>,
  options?: OpenOptions,
): Promise<Opened & { readonly projectionNames: readonly string[] }> {
  const opened = await open(options)
  const { items } = await opened.store.consumers.list({ kind: 'projection', limit: 1_000 })
  const projectionNames = items.filter(({ isRegistered }) => isRegistered).map(({ name }) => name)
  if (projectionNames.length === 0) throw new NothingRegistered({ what: 'projections', path: (await config())?.path })
  return { ...opened, projectionNames }
}

/** The command fails if a batch has stopped its projection. */
function reportBatches(out: Output, batches: Readonly<Record<string, RunResult>>): ExitCode {
  const rows = Object.entries(batches).map(([projection, { result, count, error }]) => ({
    projection,
    result,
    events: count,
    ...(error === undefined ? {} : { error: error instanceof Error ? error.message : String(error) }),
  }))
  const columns: Column<(typeof rows)[number]>[] = [
    { title: 'PROJECTION', of: row => row.projection, paint: (_, colour) => colour.cyan },
    { title: 'RESULT', of: row => kebabCase(row.result) },
    { title: 'EVENTS', of: row => row.events, right: true },
    ...(rows.some(row => row.error !== undefined)
      ? [{ title: 'ERROR', of: (row: (typeof rows)[number]) => row.error, cut: true }]
      : []),
  ]
  out.print(rows, style => table(style, rows, columns, ''))
  return rows.some(row => row.result === 'stopped') ? 1 : 0
}
