/** One execution: how it stands, its attempts with their errors, and what can be done about it. */

import type { Json } from '../../../src/server/api/contract.ts'
import type { TreeNode } from '../../../src/workflows/insight/tree.ts'
import { refusedFor } from '../../api/api.ts'
import { pageUrl } from '../../api/place.ts'
import { useReading } from '../../api/reading.ts'
import type { AnswerOf } from '../../api/routes.ts'
import { JsonView } from '../../json/view.tsx'
import { Command } from '../../parts/copy.tsx'
import { duration, shortId, time } from '../../parts/format.ts'
import { Shape } from '../../parts/icon.tsx'
import { Button, toneClass } from '../../parts/parts.tsx'
import { Show } from '../../parts/reading.tsx'
import { act } from '../../shell/act.ts'
import type { Address } from '../../shell/where.ts'
import { executionLook } from '../workflow-look.tsx'
import type { HandlerAt } from './boxes.ts'
import { type Line, stateAfter } from './replay.ts'
import { SignalForm } from './signal.tsx'
import { Steps } from './steps.tsx'

interface ExecutionProps {
  id: string
  workflow: string
  tree: AnswerOf<'GET /workflows/:id/tree'> | undefined
  lines: readonly Line[]
  address: Address
  onChange: () => void
}

export function ExecutionPanel({ id, workflow, tree, lines, address, onChange }: ExecutionProps) {
  const execution = tree === undefined ? undefined : find(tree.roots, id)
  const own = lines.filter(line => line.executionId === id)
  const first = own[0]
  const state = execution?.state ?? (own.length > 0 ? stateAfter(own.at(-1)!) : 'none')
  const look = executionLook(state, execution?.isDead)
  const ended = own.filter(line => line.kind !== 'dispatched' && line.kind !== 'started')
  return (
    <aside class="panel" aria-label={`Execution of ${execution?.handler ?? first?.handler ?? ''}`}>
      <header>
        <Shape name={look.shape} tone={toneClass(look.tone)} />
        <h2>{execution?.handler ?? first?.handler}</h2>
        <span class="mono faint cut">{shortId(id)}</span>
        <span class="push">
          <Button kind="bare" small icon="close" label="Close" onClick={() => address.replace({ open: undefined })} />
        </span>
      </header>
      <div class="pad stack-2">
        <p>
          <b class="medium">{look.word}.</b>{' '}
          <span class="dim">
            {first === undefined ? (
              ''
            ) : (
              <>
                Runs because of {first.eventType}{' '}
                <a class="link mono" href={pageUrl('/events', { open: first.eventId })}>
                  #{first.eventPosition}
                </a>
                , version {first.version} of its code.
              </>
            )}
          </span>
        </p>
        {execution?.error !== undefined && state !== 'completed' && <p class="err-text">{execution.error.message}</p>}
        {execution?.isDead && first?.eventId !== undefined && (
          <div class="actions">
            <a class="btn btn-main" href={pageUrl('/dead-letters', { of: execution.handler, open: first.eventId })}>
              Open its dead letter
            </a>
          </div>
        )}
        {state === 'parked' && (
          <Button
            icon="play"
            refused={refusedFor('operate')}
            onClick={() =>
              void act('POST /executions/:id/resume', { parameters: { id }, done: 'It continues.', after: onChange })
            }
          >
            Resume
          </Button>
        )}
      </div>
      {state === 'suspended' && <SignalForm workflow={workflow} executionId={id} onSent={onChange} />}
      <div class="sec">
        <h3>Attempts</h3>
        <ul class="steps-list">
          {ended.map(line => {
            const each = executionLook(stateAfter(line))
            return (
              <li key={line.position}>
                <Shape name={each.shape} tone={toneClass(each.tone)} />
                <span>
                  {line.attempt > 0 ? `Attempt ${line.attempt} ` : ''}
                  <span class="faint">
                    {line.kind}
                    {line.outcome === undefined ? '' : `, ${line.outcome}`}
                    {line.queuedMs === undefined ? '' : `, queued ${duration(line.queuedMs)}`}
                    {line.runningMs === undefined ? '' : `, ran ${duration(line.runningMs)}`}
                  </span>
                  {line.error !== undefined && (
                    <span class="err-text block">
                      {sameAsBefore(ended, line) ? 'the same error' : line.error.message}
                    </span>
                  )}
                </span>
                <span class="mono faint">{time(line.at)}</span>
              </li>
            )
          })}
          {ended.length === 0 && <li class="faint">It has not ended an attempt yet.</li>}
        </ul>
      </div>
      <Steps workflow={workflow} executionId={id} />
      {first?.eventId !== undefined && <Payload event={first.eventId} />}
      {execution !== undefined && execution.events.length > 0 && (
        <div class="sec">
          <h3>Emitted</h3>
          <ul class="effects">
            {execution.events.slice(0, 30).map(event => (
              <li key={event.id}>
                <i class="dotmark" />
                <a class="cut" href={pageUrl('/events', { open: event.id })}>
                  {event.type}
                </a>
                <span class="mono faint">#{event.position}</span>
              </li>
            ))}
          </ul>
        </div>
      )}
      <div class="sec">
        <Command line={`rillflow workflows show ${workflow}`} />
      </div>
    </aside>
  )
}

/** Of the attempts of one execution only the differences are worth reading. */
function sameAsBefore(ended: readonly Line[], line: Line): boolean {
  const before = ended[ended.indexOf(line) - 1]
  return before?.error !== undefined && before.error.message === line.error?.message
}

/** The data that it was given. */
function Payload({ event }: { event: string }) {
  const found = useReading('GET /events/:id', { parameters: { id: event }, query: { raw: 1 } })
  return (
    <div class="sec">
      <h3>Payload</h3>
      <Show of={found} rows={3}>
        {each => <JsonView value={each.data} text={each.stored?.data} />}
      </Show>
    </div>
  )
}

function find(nodes: readonly Json<TreeNode>[], id: string): HandlerAt | undefined {
  for (const node of nodes) {
    if (node.kind === 'handler' && node.executionId === id) return node
    const found = find(node.kind === 'event' ? [...node.handlers, ...node.events] : node.events, id)
    if (found !== undefined) return found
  }
  return undefined
}
