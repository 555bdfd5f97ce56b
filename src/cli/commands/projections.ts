/** Commands about projections. Those that run something need its code from the configuration; the others only the database. */
import type { Tick } from '../../consumers/tick.ts'
import { nearestName } from '../../core/nearest.ts'
import {
  type Commands,
  defineCommand,
  defineVerbs,
  type ExitCode,
  type Invocation,
  type Opened,
  type OpenOptions,
} from '../command.ts'
import { ago, count, digits, duration } from '../output/amount.ts'
import { complaints, type Output } from '../output/output.ts'
import { errorLine, lagOf, paintState, stateOf } from '../output/state.ts'
import { fields, table } from '../output/table.ts'
import { NothingFound, NothingRegistered } from '../report-error.ts'

const list = defineCommand({
  description: 'Those of the configuration, and those that only the database knows.',
  examples: ['rillflow projections list', 'rillflow projections list --json'],
  async run({ out, open }) {
    const { store } = await open()
    const projections = await store.projections.list()
    out.print(projections, style =>
      table(
        style,
        projections,
        [
          { title: 'PROJECTION', of: each => each.name, cut: true, paint: (_, colour) => colour.cyan },
          {
            title: 'STATE',
            of: each => stateOf(each.status),
            paint: (each, colour) => paintState(stateOf(each.status), colour),
          },
          { title: 'CHECKPOINT', of: each => each.status?.checkpoint, right: true },
          { title: 'LAG', of: each => (each.status === undefined ? undefined : lagOf(each.status)), right: true },
          { title: 'DEAD LETTERS', of: each => each.status?.deadLetters, right: true },
          { title: 'CODE', of: each => (each.isRegistered ? 'here' : 'elsewhere'), paint: (_, colour) => colour.dim },
        ],
        'No projections.',
      ),
    )
  },
})

const status = defineCommand({
  arguments: [{ name: 'name', summary: 'The projection', names: 'projection' }],
  examples: ['rillflow projections status order-totals'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    const status = await store.projections.status(name)
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
        progressed: ago(status.progressedAt, style.now),
      })
    })
  },
})

const metrics = defineCommand({
  arguments: [{ name: 'name', summary: 'Only this projection', names: 'projection', optional: true }],
  examples: ['rillflow projections metrics', 'rillflow projections metrics order-totals --json'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    const all = await store.projections.metrics()
    if (name !== undefined && all[name] === undefined) {
      const nearest = nearestName(name, Object.keys(all))
      throw new NothingFound({
        what: 'projection',
        given: name,
        hint: `rillflow projections metrics ${nearest ?? ''}`.trim(),
      })
    }
    const chosen = name === undefined ? all : { [name]: all[name]! }
    out.print(chosen, style =>
      table(
        style,
        Object.entries(chosen),
        [
          { title: 'PROJECTION', of: ([each]) => each, paint: (_, colour) => colour.cyan },
          { title: 'LAG', of: ([, each]) => digits(each.lag), right: true },
          { title: 'LAG SECONDS', of: ([, each]) => each.lagSeconds.toFixed(1), right: true },
          { title: 'FAILURES', of: ([, each]) => each.attempts, right: true },
          { title: 'DEAD LETTERS', of: ([, each]) => each.deadLetters, right: true },
          { title: 'PAUSED', of: ([, each]) => (each.isPaused ? 'yes' : 'no') },
        ],
        'No projections.',
      ),
    )
  },
})

const pause = defineCommand({
  description: 'A batch under way still ends; nothing after it begins, in any process.',
  arguments: [{ name: 'name', summary: 'The projection', names: 'projection' }],
  examples: ['rillflow projections pause order-totals'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.projections.pause(name)
    out.print(await store.projections.status(name), () => `Paused ${name}.`)
  },
})

const resume = defineCommand({
  description: 'It goes on at once: a wait after failures is over too.',
  arguments: [{ name: 'name', summary: 'The projection', names: 'projection' }],
  examples: ['rillflow projections resume order-totals'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    await store.projections.resume(name)
    out.print(await store.projections.status(name), () => `Resumed ${name}.`)
  },
})

const reset = defineCommand({
  description: 'The read model is kept, so events may count twice or be left out. To fill it anew, rebuild it instead.',
  arguments: [
    { name: 'name', summary: 'The projection', names: 'projection' },
    { name: 'position', summary: 'It goes on after this one; 0 for the beginning', kind: 'position' },
  ],
  examples: ['rillflow projections reset order-totals 0 --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { name, position } }) {
    const { store } = await open()
    const { checkpoint } = await store.projections.status(name)
    if (!(await confirm(`move the checkpoint of ${name} from ${checkpoint} to ${position}, and keep its read model`)))
      return
    await store.projections.reset(name, position)
    out.print(await store.projections.status(name), () => `Reset ${name} from ${checkpoint} to ${position}.`)
  },
})

const rebuild = defineCommand({
  description:
    'The old read model serves until the new one is switched in. One that was cut off goes on where it was when it is called again.',
  arguments: [{ name: 'name', summary: 'The projection', names: 'projection' }],
  options: {
    restart: { kind: 'flag', summary: 'Throw away what a rebuild that was cut off has done' },
    switchMs: {
      kind: 'whole',
      value: 'MS',
      default: 600_000,
      summary: 'How long to try to switch while others lock the tables',
    },
  },
  examples: ['rillflow projections rebuild order-totals'],
  async run({ out, arguments: { name }, options, signal, open, config }) {
    const { store } = await openWithProjections({ open, config })
    const bar = out.progress(`Rebuilding ${name}`)
    const { restart, switchMs } = options
    const rebuilt = await store.projections
      .rebuild(name, {
        ...{ restart, switchMs, signal },
        onProgress: ({ position, head }) => bar.update(Number(position), Number(head), 'position'),
      })
      .finally(() => bar.end())
    out.print({ projection: name, ...rebuilt, position: rebuilt.position }, style => {
      const { events, position, durationMs } = rebuilt
      const told = `${count(events, 'event')} in ${duration(durationMs)}, up to position ${position}`
      return `${style.colour.green('Rebuilt')} ${name}: ${told}.`
    })
  },
})

const runOnce = defineCommand({
  arguments: [{ name: 'name', summary: 'Only this projection', names: 'projection', optional: true }],
  examples: ['rillflow projections run-once', 'rillflow projections run-once order-totals'],
  async run({ out, arguments: { name }, signal, open, config }) {
    const { store } = await openWithProjections({ open, config })
    const { projections } = store
    const ticks =
      name === undefined
        ? await projections.tickAll({ signal })
        : { [name]: await projections.tickOnce(name, { signal }) }
    return reportTicks(out, ticks)
  },
})

const runUntilIdle = defineCommand({
  description: 'Ends when nothing is left that could be done now: for a cron call, or before a report.',
  arguments: [{ name: 'name', summary: 'Only this projection', names: 'projection', optional: true }],
  examples: ['rillflow projections run-until-idle', 'rillflow projections run-until-idle order-totals --json'],
  async run({ out, arguments: { name }, signal, open, config }) {
    const { store, names } = await openWithProjections({ open, config })
    const bar = out.progress('Applying')
    const ticks: Record<string, Tick> = {}
    let done = 0
    try {
      for (const each of name === undefined ? names : [name]) {
        let tick: Tick
        let count = 0
        do {
          tick = await store.projections.tickOnce(each, { signal })
          count += tick.count
          done += tick.count
          bar.update(done, undefined, 'event')
        } while (tick.result === 'processed')
        ticks[each] = { ...tick, count }
      }
    } finally {
      bar.end()
    }
    return reportTicks(out, ticks)
  },
})

const run = defineCommand({
  description: 'Shares the projections with daemons elsewhere. Handlers and subscriptions are run by `rillflow run`.',
  examples: ['rillflow projections run'],
  async run({ out, signal, open, config }) {
    const { store, names } = await openWithProjections({ open, config }, { logger: complaints(out), creates: true })
    out.note(`Running ${count(names.length, 'projection')}: ${names.join(', ')}. Ctrl-C ends it.`)
    await store.projections.run(signal)
  },
})

// The projections whose code the configuration has: without it nothing can be run, and that is said.

export async function openWithProjections(
  { open, config }: Pick<Invocation, 'open' | 'config'>,
  options?: OpenOptions,
): Promise<Opened & { readonly names: readonly string[] }> {
  const opened = await open(options)
  const names = (await opened.store.projections.list()).flatMap(each => (each.isRegistered ? [each.name] : []))
  if (names.length === 0) throw new NothingRegistered({ what: 'projections', path: (await config())?.path })
  return { ...opened, names }
}

// What batches came to. One that stopped its projection is a failure of the command.

export function reportTicks(out: Output, ticks: Readonly<Record<string, Tick>>): ExitCode {
  const rows = Object.entries(ticks).map(([projection, { result, count, error }]) => ({
    projection,
    result,
    events: count,
    ...(error === undefined ? {} : { error: error instanceof Error ? error.message : String(error) }),
  }))
  out.print(rows, style =>
    table(
      style,
      rows,
      [
        { title: 'PROJECTION', of: each => each.projection, paint: (_, colour) => colour.cyan },
        { title: 'RESULT', of: each => each.result },
        { title: 'EVENTS', of: each => each.events, right: true },
        ...(rows.some(each => each.error !== undefined)
          ? [{ title: 'ERROR', of: (each: (typeof rows)[number]) => each.error, cut: true }]
          : []),
      ],
      '',
    ),
  )
  return rows.some(each => each.result === 'stopped') ? 1 : 0
}

export const projections: Commands = defineVerbs({
  list: ['All projections and how far they are', list],
  status: ['One projection in detail', status],
  metrics: ['Lag and failures as numbers', metrics],
  pause: ['Apply nothing more for now', pause],
  resume: ['Go on after a pause or a failure', resume],
  reset: ['Move a checkpoint', reset],
  rebuild: ['Build a read model anew from the log', rebuild],
  'run-once': ['Apply one batch', runOnce],
  'run-until-idle': ['Apply all there is', runUntilIdle],
  run: ['Apply events until Ctrl-C', run],
})
