/** The causal graph as a drawing. Every box is a link; the list of activity is its equal for a screen reader. */
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { duration } from '../../parts/format.ts'
import { ShapeAt } from '../../parts/icon.tsx'
import type { Tone } from '../../parts/parts.tsx'
import { executionLook } from '../workflow-look.tsx'
import type { HandlerAt } from './boxes.ts'
import { type Edge, type Layout, layOut, type PlacedBox } from './graph.ts'
import type { ExecutionLookState, WorkflowAt } from './replay.ts'

interface GraphProps {
  tree: { readonly roots: Parameters<typeof layOut>[0] }
  joins: ReadonlySet<string>
  /** The states at the moment that is shown. */
  at: WorkflowAt
  chosen: string | undefined
  href: (executionId: string) => string
}

export function Graph({ tree, joins, at, chosen, href }: GraphProps) {
  const [unfolded, setUnfolded] = useState<ReadonlySet<string>>(new Set())
  const layout = useMemo(() => layOut(tree.roots, joins, unfolded), [tree, joins, unfolded])
  const drawing = useRef<SVGSVGElement>(null)
  // It may shrink a little to fit; below that it scrolls.
  useLayoutEffect(() => {
    if (drawing.current !== null) drawing.current.style.minWidth = `${Math.round(layout.width * 0.86)}px`
  }, [layout])
  const toggle = (key: string): void => setUnfolded(new Set([...unfolded, key]))
  return (
    <div class="graph-scroll" tabIndex={0} role="group" aria-label="Causal graph">
      <svg
        ref={drawing}
        class="graph-svg"
        viewBox={`-1 -1 ${layout.width + 2} ${layout.height + 2}`}
        width={layout.width + 2}
        height={layout.height + 2}
        role="group"
        aria-label={spoken(layout, at)}
      >
        {layout.edges.map(edge => (
          <EdgeView key={edge.key} edge={edge} />
        ))}
        {layout.boxes.map(placed => (
          <BoxView key={placed.box.key} placed={placed} at={at} chosen={chosen} href={href} onUnfold={toggle} />
        ))}
      </svg>
    </div>
  )
}

function spoken({ boxes }: Layout, at: WorkflowAt): string {
  const handlers = boxes.filter(({ box }) => box.kind === 'handler')
  return `Causal graph: ${handlers.map(({ box }) => `${box.name} ${box.executions.length > 1 ? `times ${box.executions.length}` : ''} ${executionLook(stateOf(box.executions[0]!, at)).word}`).join(', ')}`
}

function EdgeView({ edge }: { edge: Edge }) {
  return (
    <g>
      <path class="edge" d={edge.path} />
      {edge.label !== '' && (
        <>
          <text class="t1" x={edge.labelX} y={edge.labelY - 6} text-anchor="end">
            {short(edge.label, 17)}
          </text>
          <text class="tm" x={edge.labelX} y={edge.labelY + 15} text-anchor="end">
            {short(edge.detail, 17)}
          </text>
        </>
      )}
    </g>
  )
}

function BoxView(props: {
  placed: PlacedBox
  at: WorkflowAt
  chosen: string | undefined
  href: (id: string) => string
  onUnfold: (key: string) => void
}) {
  const { placed, at } = props
  const { box, x, y, width, height } = placed
  if (box.kind === 'leaf') return <LeafView placed={placed} isThere={box.events.some(event => at.hasEvent(event))} />
  if (box.kind === 'event')
    return (
      <g class={`gn ${at.hasEvent(box.events[0]!) ? '' : 'future'}`}>
        <rect class="box event" x={x + 0.5} y={y + 0.5} width={width} height={height} rx={height / 2} />
        <circle class="evdot on" cx={x + 22} cy={y + height / 2} r="4" />
        <text class="tb t12" x={x + 36} y={y + height / 2 - 3}>
          {short(box.name, 15)}
        </text>
        <text class="tm" x={x + 36} y={y + height / 2 + 13}>
          #{box.events[0]!.position}
        </text>
      </g>
    )
  return box.executions.length > 1 ? <StackView {...props} /> : <HandlerView {...props} />
}

function LeafView({ placed: { box, x, y, height }, isThere }: { placed: PlacedBox; isThere: boolean }) {
  const middle = y + height / 2
  return (
    <g class={isThere ? '' : 'not-yet'}>
      <circle class={`evdot ${isThere ? 'on' : ''}`} cx={x + 5} cy={middle} r="4" />
      <text class="t1" x={x + 16} y={middle + 1}>
        {short(box.name, 15)}
        {box.events.length > 1 ? ` ×${box.events.length}` : ''}
      </text>
      <text class="tm" x={x + 16} y={middle + 15}>
        #{box.events[0]!.position}
      </text>
    </g>
  )
}

function HandlerView({
  placed,
  at,
  chosen,
  href,
}: {
  placed: PlacedBox
  at: WorkflowAt
  chosen: string | undefined
  href: (id: string) => string
}) {
  const { box, x, y, width, height } = placed
  const execution = box.executions[0]!
  const state = stateOf(execution, at)
  const look = executionLook(state, execution.isDead && state === 'failed')
  return (
    <a
      href={href(execution.executionId)}
      class={`gn ${chosen === execution.executionId ? 'sel' : ''} ${state === 'none' ? 'future' : ''}`}
    >
      <rect class="box" x={x + 0.5} y={y + 0.5} width={width} height={height} rx="6" />
      <ShapeAt name={look.shape} tone={toneOf(look.tone)} x={x + 12} y={y + 13} />
      <text class="tb t12" x={x + 30} y={y + 23}>
        {short(box.name, 14)}
      </text>
      <text x={x + width - 11} y={y + 23} text-anchor="end">
        {box.isJoin
          ? 'join'
          : state === 'completed' && execution.runningMs !== undefined
            ? duration(execution.runningMs)
            : ''}
      </text>
      <text class={textTone(look.tone)} x={x + 12} y={y + 45}>
        {short(detailOf(execution, state, look.word), 23)}
      </text>
    </a>
  )
}

/** Executions that are alike: a slot for each. */
function StackView({
  placed,
  at,
  chosen,
  href,
  onUnfold,
}: {
  placed: PlacedBox
  at: WorkflowAt
  chosen: string | undefined
  href: (id: string) => string
  onUnfold: (key: string) => void
}) {
  const { box, x, y, width, height } = placed
  const states = box.executions.map(each => stateOf(each, at))
  const worst =
    states.find(state => state === 'failed' || state === 'parked') ??
    states.find(state => state !== 'completed') ??
    'completed'
  const look = executionLook(worst)
  const done = states.filter(state => state === 'completed').length
  const slots = box.executions.slice(0, 16)
  return (
    <g class={`gn ${box.executions.some(each => each.executionId === chosen) ? 'sel' : ''}`}>
      <rect class="box back" x={x + 6.5} y={y - 5.5} width={width} height={height} rx="6" />
      <rect class="box" x={x + 0.5} y={y + 0.5} width={width} height={height} rx="6" />
      <ShapeAt name={look.shape} tone={toneOf(look.tone)} x={x + 12} y={y + 11} />
      <text class="tb t12" x={x + 30} y={y + 21}>
        {short(box.name, 11)} ×{box.executions.length}
      </text>
      <g
        class="press"
        role="button"
        tabIndex={0}
        aria-label={`Unfold ${box.name}`}
        onClick={() => onUnfold(box.key)}
        onKeyDown={event => event.key === 'Enter' && onUnfold(box.key)}
      >
        <text class="trun" x={x + width - 11} y={y + 21} text-anchor="end">
          Unfold
        </text>
      </g>
      {slots.map((execution, index) => (
        <a
          key={execution.executionId}
          href={href(execution.executionId)}
          aria-label={`${box.name} ${index + 1}, ${executionLook(states[index]!).word}`}
        >
          <rect
            class={`slot ${slotOf(states[index]!)}`}
            x={x + 12 + index * 8.5}
            y={y + 32}
            width="7"
            height="9"
            rx="1.5"
          />
        </a>
      ))}
      <text class="t2" x={x + 12} y={y + 60}>
        {done} of {box.executions.length} done
      </text>
    </g>
  )
}

function stateOf(execution: HandlerAt, at: WorkflowAt): ExecutionLookState {
  return at.stateOf(execution.executionId) ?? (at.isNow ? execution.state : 'none')
}

function detailOf(execution: HandlerAt, state: ExecutionLookState, word: string): string {
  if (state === 'none') return 'not yet'
  if (state === 'failed') return execution.error?.message ?? word
  if (state === 'completed') return execution.attempts > 1 ? `${execution.attempts} attempts` : 'done'
  return word.toLowerCase()
}

function slotOf(state: ExecutionLookState): string {
  if (state === 'completed') return 'done'
  if (state === 'failed' || state === 'parked') return 'fail'
  return state === 'none' ? 'miss' : 'wait'
}

function toneOf(tone: Tone): string {
  return `sr-${tone === 'warn' ? 'warn' : tone}`
}

function textTone(tone: Tone): string {
  return { bad: 'tbad', wait: 'twait', run: 'trun', warn: 'twarn', good: 't2', rest: 't2' }[tone]
}

function short(text: string, max: number): string {
  return text.length > max ? `${text.slice(0, max - 1)}…` : text
}
