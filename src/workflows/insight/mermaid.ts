/** A workflow's tree as a flowchart of Mermaid: events as boxes, executions as rounded ones, coloured by their state. */
import { mermaidLabel } from '../../telemetry/mermaid.ts'
import type { HandlerNode, TreeNode, WorkflowTree } from './tree.ts'

export function mermaidOf({ roots, isWhole }: Pick<WorkflowTree, 'roots' | 'isWhole'>): string {
  const lines = ['flowchart TD']
  let drawn = 0
  // By hand and not by recursion: a chain of events may be longer than the stack is deep.
  const left: { node: TreeNode; from: string | undefined }[] = roots.map(node => ({ node, from: undefined })).reverse()
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const { node, from } = next
    const name = `n${++drawn}`
    lines.push(`  ${name}${boxOf(node)}`)
    if (from !== undefined) lines.push(`  ${from} --> ${name}`)
    const children: readonly TreeNode[] = node.kind === 'event' ? [...node.handlers, ...node.events] : node.events
    for (const child of [...children].reverse()) left.push({ node: child, from: name })
  }
  if (!isWhole) lines.push('  more["…"]')
  return `${[...lines, ...classes].join('\n')}\n`
}

function boxOf(node: TreeNode): string {
  if (node.kind === 'event') return `["${mermaidLabel(node.type)}"]:::event`
  const { handler, state, attempts } = node
  const tries = attempts > 1 ? ` (${attempts} attempts)` : ''
  return `(["${mermaidLabel(`${handler}: ${state}${tries}`)}"]):::${classOf(node)}`
}

function classOf({ state, isDead }: HandlerNode): string {
  if (isDead || state === 'failed') return 'dead'
  if (state === 'completed') return 'done'
  return state === 'skipped' || state === 'cancelled' ? 'left' : 'open'
}

const classes = [
  '  classDef event fill:#eef,stroke:#446',
  '  classDef done fill:#efe,stroke:#464',
  '  classDef open fill:#ffd,stroke:#774',
  '  classDef dead fill:#fdd,stroke:#844',
  '  classDef left fill:#eee,stroke:#888',
]
