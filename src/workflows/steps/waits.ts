/**
 * Waits for events of the own workflow. One is registered under the workflow's row and then looks back, from the handler's own
 * event to where the dispatcher has come; every event after that is dispatched under the same row, and finds the wait. So
 * none can be missed, whichever comes first.
 *
 * An event is given to one wait of an execution at most, the first that fits; other executions may wait for it too.
 */

import { consumerNames } from '../../consumers/schema.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { contains, readPage } from '../../events/read/page.ts'
import { dispatcherName } from '../routes.ts'
import { workflowNames } from '../schema.ts'

/** What is waited for, and by whom. */
export interface SignalWait {
  readonly execution: string
  readonly name: string
  readonly correlationId: string
  readonly type: string
  readonly match: unknown
  /** Events up to here are not meant. */
  readonly since: number
}

const pageSize = 200

/** Gives these events to who waits for them; returns how many executions go on because of it. */
export async function answerWaits(
  log: Log,
  tx: Executor,
  plans: readonly { readonly event: RecordedEvent }[],
): Promise<number> {
  if (plans.length === 0) return 0
  const events = plans.map(({ event }) => event)
  const waits = await waitsFor(log, tx, events)
  if (waits.length === 0) return 0
  const executions = [...new Set(waits.map(({ execution }) => execution))]
  const answers = assign(waits, events, await givenTo(log, tx, executions))
  if (answers.size === 0) return 0
  await recordAnswers(log, tx, answers)
  return wakeWaiting(
    log,
    tx,
    [...answers.keys()].map(({ execution }) => execution),
  )
}

/** Which of these waits, that nobody else knows yet, have an answer in the log already. The caller holds the workflow. */
export async function lookBack(
  log: Log,
  tx: Executor,
  waits: readonly SignalWait[],
): Promise<ReadonlyMap<SignalWait, number>> {
  const found = new Map<SignalWait, number>()
  const [first] = waits
  if (first === undefined) return found
  const given = await givenTo(log, tx, [first.execution])
  const [row] = await tx.run<{ checkpoint: number }>(sql`/* workflows.dispatched */
    select checkpoint
    from ${consumerNames(log).consumers}
    where name = ${dispatcherName}::text`)
  const to = row?.checkpoint ?? 0
  const filter = { types: [...new Set(waits.map(({ type }) => type))], correlationId: first.correlationId }
  for (let after = first.since; after < to && found.size < waits.length; ) {
    const { events, reached } = await readPage(log, { filter, after, to, limit: pageSize }, tx)
    const open = waits.filter(wait => !found.has(wait))
    for (const [wait, position] of assign(open, events, given)) found.set(wait, position)
    after = reached
  }
  return found
}

/** In the order of the log: each event to the first wait of each execution that it fits. */
function assign(
  waits: readonly SignalWait[],
  events: readonly RecordedEvent[],
  given: ReadonlyMap<string, ReadonlySet<number>>,
): Map<SignalWait, number> {
  const answers = new Map<SignalWait, number>()
  for (const event of events) {
    const served = new Set<string>()
    for (const wait of waits) {
      const { execution } = wait
      if (answers.has(wait) || served.has(execution) || given.get(execution)?.has(event.position)) continue
      if (!isAnswer(wait, event)) continue
      answers.set(wait, event.position)
      served.add(execution)
    }
  }
  return answers
}

function isAnswer(wait: SignalWait, event: RecordedEvent): boolean {
  return (
    event.correlationId === wait.correlationId &&
    event.type === wait.type &&
    event.position > wait.since &&
    (wait.match === null || contains(event.data, wait.match))
  )
}

async function waitsFor(log: Log, tx: Executor, events: readonly RecordedEvent[]): Promise<SignalWait[]> {
  const rows = await tx.run<Omit<SignalWait, 'correlationId'> & { correlation_id: string }>(sql`/* workflows.waits */
    select execution, name, correlation_id, type, match, since
    from ${workflowNames(log).workflow_waits}
    where correlation_id = any(${[...new Set(events.map(({ correlationId }) => correlationId))]}::text[])
      and type = any(${[...new Set(events.map(({ type }) => type))]}::text[])
    order by execution, ordinal`)
  return rows.map(({ correlation_id: correlationId, ...wait }) => ({ ...wait, correlationId }))
}

/** The events that waits of these executions were given before: a new handler may be given the log once more. */
async function givenTo(
  log: Log,
  tx: Executor,
  executions: readonly string[],
): Promise<ReadonlyMap<string, ReadonlySet<number>>> {
  const rows = await tx.run<{ execution: string; position: number }>(sql`/* workflows.given */
    select execution, position
    from ${workflowNames(log).workflow_steps}
    where execution = any(${executions}::uuid[])
      and kind = 'wait'
      and position is not null`)
  const given = new Map<string, Set<number>>()
  for (const { execution, position } of rows)
    given.set(execution, (given.get(execution) ?? new Set<number>()).add(position))
  return given
}

async function recordAnswers(log: Log, tx: Executor, answers: ReadonlyMap<SignalWait, number>): Promise<void> {
  const waits = [...answers.keys()]
  await tx.run(sql`/* workflows.answer */
    with answered as (
      select *
      from unnest(
        ${waits.map(({ execution }) => execution)}::uuid[],
        ${waits.map(({ name }) => name)}::text[],
        ${[...answers.values()]}::bigint[]) as u(execution, name, position)),
    ended as (
      update ${workflowNames(log).workflow_steps} as s
      set state = 'done',
        position = a.position
      from answered as a
      where s.execution = a.execution
        and s.kind = 'wait'
        and s.name = a.name
        and s.state = 'waiting')
    delete from ${workflowNames(log).workflow_waits} as w
    using answered as a
    where w.execution = a.execution
      and w.kind = 'wait'
      and w.name = a.name`)
}

/** Not those that wait for their next try: that has its time. */
export async function wakeWaiting(log: Log, tx: Executor, executions: readonly string[]): Promise<number> {
  const [row] = await tx.runArrays(sql`/* workflows.wake */
    select woken
    from ${workflowNames(log).workflow_wake}(p_ids => (
      select array_agg(x.id)
      from ${workflowNames(log).workflow_executions} as x
      where x.id = any(${[...new Set(executions)]}::uuid[])
        and x.state = 'suspended'))`)
  return Number((row as [number])[0])
}
