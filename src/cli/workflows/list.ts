/** `rillflow workflows list` */
import { type WorkflowState, workflowStates } from '../../workflows/status.ts'
import { type Command, defineCommand } from '../command.ts'
import { ago } from '../output/amount.ts'
import { paintState } from '../output/consumer.ts'
import { table } from '../output/table.ts'

export const listCommand: Command = defineCommand({
  options: {
    state: { kind: 'text', many: true, choices: workflowStates, value: 'STATE', summary: 'Only those' },
    since: { kind: 'time', value: 'TIME', summary: 'Only those that began since: a time, or 15m, 2h, 7d' },
    parent: { kind: 'text', value: 'WORKFLOW', summary: 'Only children of this one' },
    after: { kind: 'position', value: 'POSITION', summary: 'Where the page before ended: its "next"' },
    limit: { kind: 'whole', default: 50, value: 'COUNT', summary: 'How many at most' },
  },
  examples: ['rillflow workflows list --state failed --state waiting', 'rillflow workflows list --since 1h --json'],
  async run({ out, open, options }) {
    const { store } = await open()
    const { state, since, parent, after, limit } = options
    const wanted = state.length === 0 ? undefined : (state as readonly WorkflowState[])
    const page = await store.workflows.list({ state: wanted, startedAfter: since, parent, after, limit })
    out.print(page, style =>
      table(
        style,
        page.workflows,
        [
          { title: 'WORKFLOW', of: each => each.correlationId, paint: (_, colour) => colour.cyan },
          { title: 'STATE', of: each => each.state, paint: (each, colour) => paintState(each.state, colour) },
          { title: 'PENDING', of: each => each.pending, right: true },
          { title: 'DEAD LETTERS', of: each => each.deadLetters, right: true },
          { title: 'LAST EVENT', of: each => each.lastType, cut: true },
          { title: 'STARTED', of: each => ago(each.startedAt, style.now), paint: (_, colour) => colour.dim },
        ],
        'No workflows.',
      ),
    )
    if (page.next !== undefined) out.note(`There may be more: rillflow workflows list --after ${page.next}`)
  },
})
