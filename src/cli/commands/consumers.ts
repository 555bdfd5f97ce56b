/**
 * `rillflow consumers`: everything that follows the log, in one administration: projections, processors, subscriptions,
 * snapshotters and the dispatcher of workflows.
 *
 *     look       list · status · wait
 *     control    pause · resume · reset · remove
 *     run        run-once · run-until-idle            for scripts and tests; `rillflow run` runs everything
 *
 * A subscription may have groups. `--group` names one of them; without it a change is for all groups, and a status is that of
 * the group "default". Only the commands that run a consumer need its code from the configuration.
 *
 * What can fail: a consumer that is not known; the error suggests the nearest name. Without code, commands that need it fail
 * with `NothingRegistered`.
 */
import type { ConsumerKind } from '../../consumers/consumer.ts'
import type { RunResult } from '../../consumers/run/run.ts'
import type { ConsumerStatus } from '../../consumers/status.ts'
import type { Store } from '../../store.ts'
import { kebabCase } from '../arguments.ts'
import { type Argument, type Commands, defineCommand, defineVerbs, type ExitCode, type Invocation } from '../command.ts'
import { listCommand, pageOptions } from '../list-command.ts'
import { ago, duration } from '../output/amount.ts'
import type { Output } from '../output/output.ts'
import { errorLine, lagOf, paintState, stateOf } from '../output/state.ts'
import { type Column, fields, table } from '../output/table.ts'
import { NothingRegistered } from '../report-error.ts'

const consumer = {
  name: 'name',
  summary: 'The name of the consumer',
  completes: 'consumer',
} as const satisfies Argument

const oneConsumer = {
  name: 'name',
  summary: 'Only this consumer',
  completes: 'consumer',
  optional: true,
} as const satisfies Argument

const position = {
  name: 'position',
  summary: 'The consumer continues after this position; 0 is the beginning of the log',
  kind: 'position',
} as const satisfies Argument

/** Listed here and not imported, because the code that has them is not needed for help. */
const kinds = [
  'projection',
  'processor',
  'subscription',
  'snapshotter',
  'dispatcher',
] as const satisfies readonly ConsumerKind[]

const whichGroup = { kind: 'text', value: 'GROUP', summary: 'The group of a subscription. Default: default' } as const
const onlyGroup = { kind: 'text', value: 'GROUP', summary: 'Only this group of a subscription. Default: all' } as const

/** Also the columns of `projections list`, but for the kind. */
export const consumerColumns: readonly Column<ConsumerStatus>[] = [
  { title: 'STATE', of: stateOf, paint: (status, colour) => paintState(stateOf(status), colour) },
  { title: 'CHECKPOINT', of: ({ checkpoint }) => checkpoint, right: true },
  { title: 'LAG', of: lagOf, right: true },
  { title: 'FAILURES', of: ({ attempts }) => attempts, right: true },
  { title: 'DEAD LETTERS', of: ({ deadLetters }) => deadLetters, right: true },
  {
    title: 'CODE',
    of: ({ isRegistered }) => (isRegistered ? 'here' : 'elsewhere'),
    paint: (_, colour) => colour.dim,
  },
]

const list = listCommand({
  description:
    'LAG is the number of positions that a consumer is behind, and for how long. FAILURES counts the failures in a row of its next event. CODE is "here" if the configuration has the consumer, and "elsewhere" if only the database knows it.',
  options: {
    kind: { kind: 'text', choices: kinds, value: 'KIND', summary: 'Only consumers of this kind' },
    ...pageOptions,
  },
  examples: ['rillflow consumers list', 'rillflow consumers list --kind subscription --json'],
  empty: 'There are no consumers.',
  list: (store, given) => store.consumers.list(given),
  columns: () => [
    { title: 'CONSUMER', of: fullName, cut: true, paint: (_, colour) => colour.cyan },
    { title: 'KIND', of: ({ kind }) => kind, paint: (_, colour) => colour.dim },
    ...consumerColumns,
  ],
})

const status = defineCommand({
  arguments: [consumer],
  options: { group: whichGroup },
  examples: ['rillflow consumers status order-totals', 'rillflow consumers status mailer --group audit'],
  async run({ out, open, arguments: { name }, options: { group } }) {
    const { store } = await open()
    const status = await store.consumers.status(name, { group })
    out.print(status, style => {
      const state = stateOf(status)
      const { lease, retryInMs } = status
      return fields(style, {
        consumer: style.colour.cyan(status.name),
        kind: status.kind,
        group: status.group,
        state: paintState(state, style.colour)(state),
        checkpoint: `${status.checkpoint} of ${status.head}`,
        lag: lagOf(status),
        'held by': lease === undefined ? undefined : `${lease.owner}, for ${duration(lease.expiresInMs)}`,
        'dead letters': status.deadLetters,
        failures: status.attempts === 0 ? undefined : `${status.attempts} in a row`,
        'next attempt': retryInMs === undefined ? undefined : `in ${duration(retryInMs)}`,
        'last error': errorLine(status.lastError),
        progressed: status.progressedAt === undefined ? undefined : ago(status.progressedAt, style.now),
      })
    })
  },
})

const wait = defineCommand({
  description:
    'Ends when the consumer has applied every event up to the position. If it does not reach it in time, the error says why.',
  arguments: [
    consumer,
    {
      name: 'position',
      summary: 'The position to wait for, by default the end of the log',
      kind: 'position',
      optional: true,
    },
  ],
  options: {
    group: whichGroup,
    timeoutMs: { kind: 'whole', value: 'MS', default: 30_000, summary: 'The maximum time to wait' },
  },
  examples: ['rillflow consumers wait order-totals', 'rillflow consumers wait order-totals 4711 --timeout-ms 5000'],
  async run({ out, open, arguments: { name, position: given }, options: { group, timeoutMs }, signal }) {
    const { store } = await open()
    const position = given ?? (await store.events.settled()).settled
    await store.consumers.waitFor(name, position, { group, timeoutMs, signal })
    const status = await store.consumers.status(name, { group })
    out.print(status, () => `${name} has applied every event up to position ${position}.`)
  },
})

const pause = defineCommand({
  description:
    'The running batch is completed. After it, no process applies events for the consumer until it is resumed. Events that a subscription has delivered can still be acknowledged.',
  arguments: [consumer],
  options: { group: onlyGroup },
  examples: ['rillflow consumers pause order-totals', 'rillflow consumers pause mailer --group audit'],
  async run({ out, open, arguments: { name }, options: { group } }) {
    const { store } = await open()
    await store.consumers.pause(name, { group })
    out.print(await statusesOf(store, name, group), () => `Paused ${target(name, group)}.`)
  },
})

const resume = defineCommand({
  description: 'The consumer continues at once, in every process, even if it waits for a retry after a failure.',
  arguments: [consumer],
  options: { group: onlyGroup },
  examples: ['rillflow consumers resume order-totals', 'rillflow consumers resume mailer --group audit'],
  async run({ out, open, arguments: { name }, options: { group } }) {
    const { store } = await open()
    await store.consumers.resume(name, { group })
    out.print(await statusesOf(store, name, group), () => `Resumed ${target(name, group)}.`)
  },
})

const reset = defineCommand({
  description:
    'The events after the position are applied or delivered again. A read model is not changed, so events may be counted twice or be missing: to fill it again from the log, use `projections rebuild` instead.',
  arguments: [consumer, position],
  options: { group: onlyGroup },
  examples: ['rillflow consumers reset mailer 0 --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { name, position }, options: { group } }) {
    const { store } = await open()
    const before = await statusesOf(store, name, group)
    const from = [...new Set(before.map(({ checkpoint }) => checkpoint))].join(', ')
    const move = `${target(name, group)} from ${from} to ${position}`
    if (!(await confirm(`move the checkpoint of ${move}`))) return
    await store.consumers.reset(name, position, { group })
    out.print(await statusesOf(store, name, group), () => `Reset ${move}.`)
  },
})

const remove = defineCommand({
  description:
    'Deletes the checkpoint and the dead letters. The tables of a projection stay, unless they are to be dropped. A consumer whose code still runs begins again.',
  arguments: [consumer],
  options: { group: onlyGroup, dropTables: { kind: 'flag', summary: 'Also drop the tables of a projection' } },
  examples: ['rillflow consumers remove old-totals --yes', 'rillflow consumers remove old-totals --drop-tables --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { name }, options: { group, dropTables } }) {
    const { store } = await open()
    const before = await statusesOf(store, name, group)
    const letters = before.reduce((sum, { deadLetters }) => sum + deadLetters, 0)
    const tables = dropTables ? ', and the tables,' : ''
    const question = `delete the checkpoint and the dead letters (${letters} open)${tables} of ${target(name, group)}`
    if (!(await confirm(question))) return
    await store.consumers.remove(name, { group, dropTables })
    out.print({ consumer: name, group, removed: true }, () => `Removed ${target(name, group)}.`)
  },
})

const runOnce = defineCommand({
  description: 'A subscription gets all events up to the present end of the log.',
  arguments: [oneConsumer],
  examples: ['rillflow consumers run-once', 'rillflow consumers run-once order-totals'],
  async run({ out, arguments: { name }, signal, open, config }) {
    const { store, names } = await openWithCode({ open, config }, name)
    const results: Record<string, RunResult> = {}
    for (const each of names) results[each] = await store.consumers.runOnce(each, { signal })
    return reportResults(out, results)
  },
})

const runUntilIdle = defineCommand({
  description: 'Ends when there is nothing left to apply: for a cron job, or before a report.',
  arguments: [oneConsumer],
  examples: ['rillflow consumers run-until-idle', 'rillflow consumers run-until-idle order-totals --json'],
  async run({ out, arguments: { name }, signal, open, config }) {
    const { store, names } = await openWithCode({ open, config }, name)
    const bar = out.progress('Applying')
    const totals: Record<string, RunResult> = {}
    let applied = 0
    try {
      for (const each of names) {
        let result: RunResult
        let count = 0
        do {
          result = await store.consumers.runOnce(each, { signal })
          count += result.count
          applied += result.count
          bar.update(applied, undefined, 'event')
        } while (result.result === 'processed')
        totals[each] = { ...result, count }
      }
    } finally {
      bar.end()
    }
    return reportResults(out, totals)
  },
})

export const consumers: Commands = defineVerbs({
  list: ['Show all consumers and how far they are', list],
  status: ['Show one consumer in detail', status],
  wait: ['Wait until a consumer has reached a position', wait],
  pause: ['Stop applying events for now', pause],
  resume: ['Continue after a pause or a failure', resume],
  reset: ['Move the checkpoint of a consumer', reset],
  remove: ['Delete a consumer that is no longer used', remove],
  'run-once': ['Apply one batch of events in this process', runOnce],
  'run-until-idle': ['Apply all events that are left in this process', runUntilIdle],
})

/** `mailer/audit` for a group that is not the default one. */
export function fullName({ name, group }: Pick<ConsumerStatus, 'name' | 'group'>): string {
  return group === undefined || group === 'default' ? name : `${name}/${group}`
}

function target(name: string, group: string | undefined): string {
  return group === undefined ? name : `group ${group} of ${name}`
}

/** Of one group, or of all groups that a consumer has. Fails if there is no such consumer. */
async function statusesOf(store: Store, name: string, group: string | undefined): Promise<ConsumerStatus[]> {
  if (group !== undefined) return [await store.consumers.status(name, { group })]
  const { items } = await store.consumers.list({ limit: 10_000 })
  const found = items.filter(status => status.name === name)
  return found.length > 0 ? found : [await store.consumers.status(name)]
}

/** The consumers that the line means. Fails if the configuration has none to run. */
async function openWithCode(
  { open, config }: Pick<Invocation, 'open' | 'config'>,
  name: string | undefined,
): Promise<{ readonly store: Store; readonly names: readonly string[] }> {
  const { store } = await open({ purpose: 'write' })
  const { projections, processors, snapshots, subscriptions } = store.runners.registered()
  const registered = [...projections, ...processors, ...snapshots, ...subscriptions]
  if (registered.length === 0)
    throw new NothingRegistered({ what: 'projections, processors or subscriptions', path: (await config())?.path })
  return { store, names: name === undefined ? registered : [name] }
}

/** The command fails if a consumer was stopped by an error. */
function reportResults(out: Output, results: Readonly<Record<string, RunResult>>): ExitCode {
  const rows = Object.entries(results).map(([consumer, { result, count, error }]) => ({
    consumer,
    result,
    events: count,
    ...(error === undefined ? {} : { error: error instanceof Error ? error.message : String(error) }),
  }))
  const columns: Column<(typeof rows)[number]>[] = [
    { title: 'CONSUMER', of: row => row.consumer, paint: (_, colour) => colour.cyan },
    { title: 'RESULT', of: row => kebabCase(row.result) },
    { title: 'EVENTS', of: row => row.events, right: true },
    ...(rows.some(row => row.error !== undefined)
      ? [{ title: 'ERROR', of: (row: (typeof rows)[number]) => row.error, below: true }]
      : []),
  ]
  out.print(rows, style => table(style, rows, columns, ''))
  return rows.some(row => row.result === 'stopped') ? 1 : 0
}
