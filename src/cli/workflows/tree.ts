/** `rillflow workflows tree` */
import type { TreeNode } from '../../workflows/insight/tree.ts'
import { type Command, defineCommand } from '../command.ts'
import { duration } from '../output/amount.ts'
import { paintState } from '../output/consumer.ts'
import type { Style } from '../output/output.ts'
import { knownStatus, workflowArgument } from './known.ts'

export const treeCommand: Command = defineCommand({
  description: 'Events, the handlers they ran, the events these emitted, and so on.',
  arguments: [workflowArgument],
  options: {
    mermaid: { kind: 'flag', summary: 'As the text of a Mermaid flowchart' },
    limit: { kind: 'whole', default: 1000, value: 'COUNT', summary: 'The most events' },
  },
  examples: [
    'rillflow workflows tree 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001',
    'rillflow workflows tree 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --mermaid > flow.mmd',
  ],
  async run({ out, open, arguments: { workflow }, options: { mermaid, limit } }) {
    const { store } = await open()
    await knownStatus(store, workflow)
    const tree = await store.workflows.flow(workflow).tree({ limit })
    if (mermaid) {
      const text = store.workflows.mermaid(tree)
      out.print({ correlationId: workflow, mermaid: text }, () => text.trimEnd())
    } else
      out.print(tree, style =>
        [...linesOf(style, tree.roots), ...(tree.isWhole ? [] : [style.symbols.ellipsis])].join('\n'),
      )
  },
})

/** By hand and not by recursion: a chain of events may be longer than the stack is deep. */
function* linesOf(style: Style, roots: readonly TreeNode[]): Generator<string> {
  const { branch, last, pipe } = style.symbols
  const left = roots.map(node => ({ node, lead: '', joint: '' })).reverse()
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const { node, lead, joint } = next
    yield `${style.colour.dim(lead + joint)}${labelOf(style, node)}`
    const below = joint === '' ? '' : joint === last ? `${lead}${' '.repeat(last.length)}` : `${lead}${pipe}`
    const children: readonly TreeNode[] = node.kind === 'event' ? [...node.handlers, ...node.events] : node.events
    const placed = children.map((child, at) => ({
      node: child,
      lead: below,
      joint: at === children.length - 1 ? last : branch,
    }))
    left.push(...placed.reverse())
  }
}

function labelOf({ colour }: Style, node: TreeNode): string {
  if (node.kind === 'event') return `${colour.bold(node.type)} ${colour.dim(`#${node.position}`)}`
  const { handler, state, isDead, attempts, runningMs, error } = node
  const shown = isDead ? 'failed' : state
  const took = runningMs === undefined ? '' : ` ${colour.dim(duration(runningMs))}`
  const tries = attempts > 1 ? ` ${colour.dim(`${attempts} attempts`)}` : ''
  return `${handler} ${paintState(shown, colour)(shown)}${took}${tries}${error === undefined ? '' : ` ${colour.red(error.message)}`}`
}
