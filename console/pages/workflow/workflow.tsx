/**
 * One workflow: the causal graph, the timeline and the list of its activity share one cursor, which a replay moves. The
 * execution that is chosen is in the address.
 *
 *     graph.ts     from the tree to boxes and edges          timeline.ts    from activity to spans
 *     replay.ts    the states at a moment                    execution.tsx  one execution: attempts, waits, errors
 */
import { useEffect, useMemo, useState } from 'preact/hooks'
import { useRoute } from 'preact-iso'
import { refusedFor, request } from '../../api/api.ts'
import { useFeed } from '../../api/live.ts'
import { pageUrl } from '../../api/place.ts'
import { type Reading, useReading } from '../../api/reading.ts'
import type { AnswerOf } from '../../api/routes.ts'
import { copyText } from '../../parts/copy.tsx'
import { Cost } from '../../parts/cost.tsx'
import { ask } from '../../parts/dialog.tsx'
import { duration, plural, relative, shortId, time } from '../../parts/format.ts'
import { Shape } from '../../parts/icon.tsx'
import { Button, Head, LinkChoice, Panel } from '../../parts/parts.tsx'
import { Bones, Empty, Failed } from '../../parts/reading.tsx'
import { useThrottled } from '../../parts/throttle.ts'
import { act } from '../../shell/act.ts'
import { useAddress, useWhere } from '../../shell/where.ts'
import { WorkflowWhy } from '../why.tsx'
import { workflowLook } from '../workflow-look.tsx'
import { ActivityList } from './activity-list.tsx'
import { ExecutionPanel } from './execution.tsx'
import { Graph } from './graph-view.tsx'
import { Joins } from './joins.tsx'
import { type Line, present, workflowAt } from './replay.ts'
import { ReplayBar } from './replay-bar.tsx'
import { SignalForm } from './signal.tsx'
import { Timeline } from './timeline-view.tsx'

export type Status = AnswerOf<'GET /workflows/:id'>

export function WorkflowPage() {
  const id = useRoute().params.id ?? ''
  useWhere({ label: 'Workflows', path: '/workflows' }, { label: id, isMono: true })
  const address = useAddress()
  const status = useReading('GET /workflows/:id', { parameters: { id } })
  const tree = useReading('GET /workflows/:id/tree', { parameters: { id } })
  const activity = useReading('GET /workflows/:id/activity', { parameters: { id }, query: { limit: 500 } })
  const handlers = useReading('GET /handlers', { query: { limit: 500 } })
  const refresh = useThrottled(() => {
    status.reload()
    tree.reload()
    activity.reload()
  }, 500)
  useFeed(['activity', 'events'], refresh, { correlationId: id })
  const joins = useMemo(
    () => new Set(handlers.data?.items.filter(each => each.kind === 'join').map(each => each.handler)),
    [handlers.data],
  )
  const lines = useMemo<readonly Line[]>(
    () => [...(activity.data?.items ?? [])].sort((a, b) => a.position - b.position),
    [activity.data],
  )
  const [moment, setMoment] = useState<number | undefined>(undefined)
  const at = useMemo(() => (moment === undefined ? present : workflowAt(lines, moment)), [lines, moment])
  const isUnknown = tree.data !== undefined && tree.data.events === 0 && tree.data.executions === 0
  const chosen = address.query.open
  const href = (executionId: string): string => address.with({ open: executionId })
  useEffect(() => setMoment(undefined), [id])
  if (isUnknown) return <Unknown id={id} />
  return (
    <div class="page">
      <WorkflowHead
        id={id}
        status={status}
        tree={tree.data}
        isReplayed={moment !== undefined}
        onReplay={() => setMoment(moment === undefined ? 1 : undefined)}
      />
      {status.error !== undefined && <Failed reading={status} />}
      {status.data !== undefined && <FailureNotice status={status.data} />}
      {moment !== undefined && <ReplayBar lines={lines} moment={moment} onMove={setMoment} />}
      <Panel
        class="graph"
        title="Graph"
        sub={tree.data?.isWhole === false ? 'the first events; the list has all' : 'what caused what'}
        end={
          <LinkChoice
            label="View"
            value={address.query.view ?? 'graph'}
            choices={[
              { value: 'graph', label: 'Graph and timeline' },
              { value: 'list', label: `List ${lines.length}` },
            ]}
            href={value => address.with({ view: value === 'graph' ? undefined : value })}
          />
        }
      >
        {tree.data === undefined ? (
          <Bones rows={4} />
        ) : (
          <Graph tree={tree.data} joins={joins} at={at} chosen={chosen} href={href} />
        )}
      </Panel>
      <div class={chosen === undefined ? '' : 'wf-low'}>
        {address.query.view === 'list' ? (
          <ActivityList lines={lines} chosen={chosen} address={address} />
        ) : (
          <Timeline
            lines={moment === undefined ? lines : lines.slice(0, moment)}
            isOpen={moment === undefined && status.data?.isSettled === false}
            chosen={chosen}
            cursor={moment === undefined ? undefined : Date.parse(lines[moment - 1]?.at ?? '')}
            href={href}
          />
        )}
        {chosen !== undefined && (
          <ExecutionPanel
            id={chosen}
            workflow={id}
            tree={tree.data}
            lines={lines}
            address={address}
            onChange={refresh}
          />
        )}
      </div>
      {status.data?.state === 'waiting' && chosen === undefined && <SignalForm workflow={id} onSent={refresh} />}
      {status.data !== undefined &&
        (!status.data.isSettled || status.data.state === 'waiting' || status.data.deadLetters > 0) && (
          <WorkflowWhy id={id} />
        )}
      <Joins id={id} isOpen={status.data?.isSettled === false} />
      <Cost of={[status, tree, activity, handlers]} />
    </div>
  )
}

function WorkflowHead(props: {
  id: string
  status: Reading<Status>
  tree: AnswerOf<'GET /workflows/:id/tree'> | undefined
  isReplayed: boolean
  onReplay: () => void
}) {
  const { id, status, tree, isReplayed, onReplay } = props
  const found = status.data
  const root = tree?.roots[0]
  const title = root === undefined ? shortId(id) : root.kind === 'event' ? root.type : root.handler
  const cancel = async (compensate: boolean): Promise<void> => {
    const reason = await ask({
      title: compensate ? 'Cancel this workflow, and undo its steps?' : 'Cancel this workflow?',
      body: `It has ${plural(found?.pending ?? 0, 'open execution')}. What runs is asked to stop, and nothing begins after it. ${
        compensate
          ? 'Then the undos that its steps have recorded run, the newest first.'
          : 'Its recorded steps are not undone.'
      }`,
      verb: compensate ? 'Cancel and compensate' : 'Cancel the workflow',
      isDanger: true,
      field: { label: 'Reason', hint: 'It is kept with the workflow.', initial: 'cancelled from the console' },
      command: `rillflow workflows cancel ${id}${compensate ? ' --compensate' : ''}`,
      ...(!compensate && { instead: { label: 'Compensate, too…', run: () => void cancel(true) } }),
    })
    if (reason !== undefined)
      await act('POST /workflows/:id/cancel', {
        parameters: { id },
        body: { reason, compensate },
        done: compensate ? 'The workflow is cancelled, and its undos run.' : 'The workflow is cancelled.',
        after: status.reload,
      })
  }
  const copyMermaid = async (): Promise<void> => {
    const { data } = await request('GET /workflows/:id/mermaid', { parameters: { id } })
    copyText(data.text)
  }
  return (
    <Head
      title={title}
      badge={found === undefined ? undefined : workflowLook(found.state)}
      sub={found === undefined ? undefined : <Started status={found} tree={tree} />}
    >
      <Button icon={isReplayed ? 'stop' : 'play'} onClick={onReplay}>
        {isReplayed ? 'To the present' : 'Replay'}
      </Button>
      <a class="btn" href={pageUrl('/events', { workflow: id })}>
        Events
      </a>
      <Button kind="bare" icon="copy" onClick={() => void copyMermaid()}>
        Mermaid
      </Button>
      <Button
        kind="danger"
        refused={found?.isSettled === true && found.state !== 'waiting' ? 'it is over' : refusedFor('operate')}
        onClick={() => void cancel(false)}
      >
        Cancel…
      </Button>
    </Head>
  )
}

/** Failures for good come first, with the way to their dead letters. */
function FailureNotice({ status: { correlationId, lastFailure, deadLetters } }: { status: Status }) {
  if (deadLetters === 0 || lastFailure === undefined) return null
  return (
    <div class="notice bad">
      <Shape name="failed" tone="tone-bad" />
      <div class="grow">
        <b class="strong">{lastFailure.handler} failed for good</b>
        <p>{lastFailure.error.message}</p>
      </div>
      <a class="btn" href={pageUrl('/dead-letters', { workflow: correlationId })}>
        {deadLetters === 1 ? 'Open its dead letter' : `Open its ${deadLetters} dead letters`}
      </a>
    </div>
  )
}

function Started({ status, tree }: { status: Status; tree: AnswerOf<'GET /workflows/:id/tree'> | undefined }) {
  const { startedAt, updatedAt, pending, parent } = status
  return (
    <>
      {startedAt !== undefined && `started ${time(startedAt)}, ${relative(startedAt)}`}
      {status.isSettled &&
        startedAt !== undefined &&
        updatedAt !== undefined &&
        `, took ${duration(Date.parse(updatedAt) - Date.parse(startedAt))}`}
      {tree !== undefined && ` · ${plural(tree.events, 'event')} · ${plural(tree.executions, 'execution')}`}
      {pending > 0 && `, ${pending} open`}
      {parent !== undefined && (
        <>
          {' · child of '}
          <a class="link mono" href={pageUrl(`/workflows/${encodeURIComponent(parent)}`)}>
            {shortId(parent)}
          </a>
        </>
      )}
    </>
  )
}

function Unknown({ id }: { id: string }) {
  return (
    <div class="page">
      <Head title="No workflow has this id" />
      <Empty title="The log has no event with this correlation id">
        <p>
          <span class="mono">{id}</span> may be of another store, or its events were removed by retention.{' '}
          <a class="link" href={pageUrl('/workflows')}>
            All workflows
          </a>
        </p>
      </Empty>
    </div>
  )
}
