/**
 * `rillflow status`: the store at a glance: the log, the consumers and how far they are, and the failures. It also saves the
 * names that it finds, for completion in the shell.
 */

import type { ConsumerKind } from '../../consumers/consumer.ts'
import { everyItem } from '../../core/page.ts'
import type { LogState } from '../../events/events.ts'
import type { Store } from '../../store.ts'
import type { WorkflowStats } from '../../workflows/insight/stats.ts'
import { type Command, defineCommand, type Opened } from '../command.ts'
import { collectNames, saveNames } from '../completion.ts'
import { count, digits } from '../output/amount.ts'
import type { Style } from '../output/output.ts'
import { lagOf, paintState, stateOf } from '../output/state.ts'
import { type Column, fields, table } from '../output/table.ts'
import { fullName } from './consumers.ts'

export const status: Command = defineCommand({
  description:
    'Shows the log, the consumers and how far they are, and the number of failures. It also saves the names that it finds, so that your shell can complete them.',
  examples: ['rillflow status', 'rillflow status --json | jq .log.head'],
  async run({ out, open }) {
    const opened = await open()
    const status = await readStatus(opened)
    out.print(status, style => statusText(style, status))
    // The status is complete without the names, so a cache that cannot be written is not an error.
    await collectNames(opened)
      .then(saveNames)
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
  /** Those that are alive. */
  readonly runners: number
}

interface ConsumerLine {
  readonly kind: ConsumerKind
  readonly name: string
  readonly state: string
  readonly checkpoint: number | undefined
  readonly lag: string | undefined
  readonly deadLetters: number
}

export async function readStatus({ store, where }: Pick<Opened, 'store' | 'where'>): Promise<Status> {
  const { head, settled, heldBackBy } = await store.events.settled()
  const { workflows, executions, deadLetters } = await store.workflows.stats()
  return {
    store: { engine: store.engine, where, schema: store.schema.name, state: (await store.schema.state()).status },
    log: { head, settled, heldBackBy },
    consumers: await consumerLines(store),
    deadLetters: { open: (await everyItem(store.deadLetters.stats)).reduce((sum, { open }) => sum + open, 0) },
    workflows: { ...workflows, open: executions.open, deadLetters },
    runners: (await store.runners.list()).items.filter(({ isAlive }) => isAlive).length,
  }
}

async function consumerLines(store: Store): Promise<ConsumerLine[]> {
  const { items } = await store.consumers.list({ limit: 1_000 })
  return items
    .filter(({ kind }) => kind !== 'dispatcher')
    .map(status => ({
      kind: status.kind,
      name: fullName(status),
      state: stateOf(status),
      checkpoint: status.progressedAt === undefined ? undefined : status.checkpoint,
      lag: status.progressedAt === undefined ? undefined : lagOf(status),
      deadLetters: status.deadLetters,
    }))
}

function statusText(style: Style, { store, log, consumers, deadLetters, workflows, runners }: Status): string {
  const { colour } = style
  const settled = log.settled < log.head ? `, settled up to ${digits(log.settled)}` : ''
  const open = Object.values(workflows.open).reduce((sum, executions) => sum + executions, 0)
  const summary = fields(style, {
    store: `${store.where} (${store.engine === 'pglite' ? 'embedded' : 'PostgreSQL'}), schema ${store.schema}`,
    schema: store.state === 'current' ? colour.green('current') : colour.yellow(store.state),
    log: `position ${digits(log.head)}${settled}`,
    workflows: `${digits(workflows.active)} active, ${digits(workflows.settled)} settled, ${count(open, 'open execution')}`,
    'dead letters': deadLetters.open === 0 ? '0' : colour.red(`${digits(deadLetters.open)} open`),
    runners: digits(runners),
  })
  const columns: Column<ConsumerLine>[] = [
    { title: 'CONSUMER', of: ({ name }) => name, cut: true, paint: (_, { cyan }) => cyan },
    { title: 'KIND', of: ({ kind }) => kind, paint: (_, { dim }) => dim },
    { title: 'STATE', of: ({ state }) => state, paint: ({ state }, colours) => paintState(state, colours) },
    { title: 'CHECKPOINT', of: ({ checkpoint }) => checkpoint, right: true },
    { title: 'LAG', of: ({ lag }) => lag, right: true },
    { title: 'DEAD LETTERS', of: line => line.deadLetters, right: true },
  ]
  return `${summary}\n\n${table(style, consumers, columns, 'There are no consumers yet.')}`
}
