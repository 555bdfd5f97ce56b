/** `rillflow status`: the store at a glance. */
import type { LogState } from '../../events/events.ts'
import type { Store } from '../../store.ts'
import type { WorkflowStats } from '../../workflows/insight/stats.ts'
import { type Command, defineCommand, type Opened } from '../command.ts'
import { namesIn, rememberNames } from '../completion.ts'
import { count, digits } from '../output/amount.ts'
import type { Style } from '../output/output.ts'
import { lagOf, paintState, stateOf } from '../output/state.ts'
import { fields, table } from '../output/table.ts'
import { groupStateOf } from './subscriptions.ts'

export const statusCommand: Command = defineCommand({
  description:
    'The log, who follows it and how far they are, and what has failed. The names it finds are kept for the shell to complete.',
  examples: ['rillflow status', 'rillflow status --json | jq .log.head'],
  async run({ out, open }) {
    const opened = await open()
    const status = await readStatus(opened)
    out.print(status, style => statusText(style, status))
    // A status without a place for them is as good.
    await namesIn(opened)
      .then(rememberNames)
      .catch(() => {})
  },
})

export interface Status {
  readonly store: {
    readonly engine: Store['engine']
    readonly where: string
    readonly schema: string
    readonly state: string
  }
  readonly log: LogState
  readonly consumers: readonly ConsumerLine[]
  readonly deadLetters: { readonly open: number }
  readonly workflows: WorkflowStats['workflows'] & {
    readonly open: WorkflowStats['executions']['open']
    readonly deadLetters: WorkflowStats['deadLetters']
  }
  readonly daemons: number
  readonly workers: number
}

export async function readStatus({ store, where }: Pick<Opened, 'store' | 'where'>): Promise<Status> {
  const { head, settled, heldBackBy } = await store.events.settled()
  const { workflows, executions, deadLetters } = await store.workflows.stats()
  return {
    store: { engine: store.engine, where, schema: store.schema.name, state: (await store.schema.state()).status },
    log: { head, settled, heldBackBy },
    consumers: [...(await projectionsOf(store)), ...(await groupsOf(store))],
    deadLetters: { open: (await store.deadLetters.stats()).reduce((sum, each) => sum + each.open, 0) },
    workflows: { ...workflows, open: executions.open, deadLetters },
    daemons: (await store.daemons.list()).filter(each => each.isAlive).length,
    workers: (await store.workflows.workers()).length,
  }
}

interface ConsumerLine {
  readonly kind: 'projection' | 'subscription'
  readonly name: string
  readonly state: string
  readonly checkpoint: bigint | undefined
  readonly lag: string | undefined
  readonly deadLetters: number
}

async function projectionsOf(store: Store): Promise<ConsumerLine[]> {
  return (await store.projections.list()).map(({ name, status }) => ({
    ...({ kind: 'projection', name, state: stateOf(status), checkpoint: status?.checkpoint } as const),
    ...{ lag: status === undefined ? undefined : lagOf(status), deadLetters: status?.deadLetters ?? 0 },
  }))
}

async function groupsOf(store: Store): Promise<ConsumerLine[]> {
  const lines: ConsumerLine[] = []
  for (const { name } of await store.subscriptions.list()) {
    for (const status of await store.subscriptions.groups(name)) {
      const shown = status.group === 'default' ? name : `${name}/${status.group}`
      const { checkpoint, deadLetters } = status
      lines.push({
        kind: 'subscription',
        name: shown,
        state: groupStateOf(status),
        checkpoint,
        lag: lagOf(status),
        deadLetters,
      })
    }
  }
  return lines
}

function statusText(style: Style, { store, log, consumers, deadLetters, workflows, daemons, workers }: Status): string {
  const { colour } = style
  const behind = log.settled < log.head ? `, settled up to ${digits(log.settled)}` : ''
  const open = Object.values(workflows.open).reduce((sum, each) => sum + each, 0)
  const summary = fields(style, {
    store: `${store.where} (${store.engine === 'pglite' ? 'embedded' : 'PostgreSQL'}), schema ${store.schema}`,
    schema: store.state === 'current' ? colour.green('current') : colour.yellow(store.state),
    log: `position ${digits(log.head)}${behind}`,
    workflows: `${digits(workflows.active)} active, ${digits(workflows.settled)} settled, ${count(open, 'open execution')}`,
    'dead letters': deadLetters.open === 0 ? '0' : colour.red(`${digits(deadLetters.open)} open`),
    running: `${count(daemons, 'daemon')}, ${count(workers, 'worker')}`,
  })
  const lines = table(
    style,
    consumers,
    [
      { title: 'CONSUMER', of: each => each.name, cut: true, paint: (_, each) => each.cyan },
      { title: 'KIND', of: each => each.kind, paint: (_, each) => each.dim },
      { title: 'STATE', of: each => each.state, paint: (each, painting) => paintState(each.state, painting) },
      { title: 'CHECKPOINT', of: each => each.checkpoint, right: true },
      { title: 'LAG', of: each => each.lag, right: true },
      { title: 'DEAD LETTERS', of: each => each.deadLetters, right: true },
    ],
    'Nothing follows the log yet.',
  )
  return `${summary}\n\n${lines}`
}
