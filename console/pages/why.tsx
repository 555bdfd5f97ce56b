/** Why an event is not processed yet, or a workflow not settled: a verdict for each consumer and handler. */
import { pageUrl } from '../api/place.ts'
import { type Reading, useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Command } from '../parts/copy.tsx'
import { plural } from '../parts/format.ts'
import { Shape, type ShapeName } from '../parts/icon.tsx'
import type { Tone } from '../parts/parts.tsx'
import { Panel, toneClass } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'

type Explanation = AnswerOf<'GET /events/:id/why'>
type Verdict = Explanation['verdicts'][number]

export function WhyPanel({ event }: { event: { id: string } }) {
  const why = useReading('GET /events/:id/why', { parameters: { id: event.id }, everyMs: 4000 })
  return (
    <Show of={why}>{found => <Verdicts found={found} done="It is processed: nothing is left to do for it." />}</Show>
  )
}

export function WorkflowWhy({ id }: { id: string }) {
  const why = useReading('GET /workflows/:id/why', { parameters: { id }, everyMs: 4000 })
  if (why.data?.isDone === true) return null
  return (
    <Panel title="Why is it not settled?">
      <WorkflowVerdicts of={why} />
    </Panel>
  )
}

function WorkflowVerdicts({ of }: { of: Reading<AnswerOf<'GET /workflows/:id/why'>> }) {
  return <Show of={of}>{found => <Verdicts found={found} done="It is settled." />}</Show>
}

function Verdicts({ found: { verdicts, isDone }, done }: { found: Explanation; done: string }) {
  const blocked = verdicts.filter(each => each.state === 'blocked')
  const waiting = verdicts.filter(each => each.state === 'waiting')
  const first = blocked[0] ?? waiting[0]
  const say = isDone ? done : first === undefined ? 'It comes by itself.' : sentence(first)
  return (
    <>
      <div class="verdict">
        <p class="say">{say}</p>
        {!isDone && (
          <p class="dim">
            {blocked.length > 0
              ? `${plural(blocked.length, 'reader')} ${blocked.length === 1 ? 'waits' : 'wait'} for a person.`
              : 'No person is needed: it comes by itself.'}
          </p>
        )}
      </div>
      <ul class="why">
        {verdicts.map(each => (
          <VerdictLine key={`${each.kind} ${each.name} ${each.executionId ?? ''}`} verdict={each} />
        ))}
      </ul>
    </>
  )
}

/** A verdict that can be read aloud: its subject is the reader. */
function sentence({ name, message }: Verdict): string {
  return name === undefined ? message : `${name} ${message.replace(/^It /, '')}`
}

const looks: Record<Verdict['state'], { shape: ShapeName; tone: Tone; word: string }> = {
  blocked: { shape: 'parked', tone: 'warn', word: 'Held' },
  waiting: { shape: 'running', tone: 'run', word: 'On its way' },
  done: { shape: 'done', tone: 'good', word: 'Done' },
  none: { shape: 'none', tone: 'rest', word: 'Leaves it out' },
}

function VerdictLine({ verdict }: { verdict: Verdict }) {
  const { name, kind, state, message, fix, reason } = verdict
  const look = looks[state]
  return (
    <li class={state === 'blocked' ? 'block' : ''}>
      <Shape name={look.shape} tone={toneClass(look.tone)} />
      <span class="what">
        <b>
          {name === undefined ? (
            'The log'
          ) : kind === 'handler' ? (
            <a href={pageUrl('/handlers', { open: name })}>{name}</a>
          ) : (
            <a href={pageUrl(`/projections/${encodeURIComponent(name)}`)}>{name}</a>
          )}
        </b>
        <span class="kind">{kind === 'log' ? '' : kind}</span>
      </span>
      <span class={`word ${toneClass(look.tone)}`} title={reason}>
        {look.word}
      </span>
      <p class="because">{message}</p>
      {fix !== undefined && (
        <div class="mend">
          <div class="grow">
            <Command line={fix} />
          </div>
          {reason === 'deadLetter' && name !== undefined && (
            <a class="btn btn-main" href={pageUrl('/dead-letters', { of: name })}>
              Open the dead letter
            </a>
          )}
        </div>
      )}
    </li>
  )
}
