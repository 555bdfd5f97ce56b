/**
 * Waits for events of the own workflow (signals), for timers and for child workflows: how a run that does nothing but wait
 * is suspended, and how an event finds the wait it ends.
 *
 *     waitForEvent ─► nothing else to do ─► suspended: waits stored under the workflow's row ─► look back in the log
 *     an event is dispatched, under the same row ─► the wait it fits is answered ─► its execution is woken
 *
 * Guarantee: no event is missed, whichever comes first. A wait is stored under the row of the workflow and then looks back,
 * from the handler's own event to the dispatcher's checkpoint; every later event is dispatched under the same row, and finds
 * the wait. An event is given to one wait of an execution at most, the first that fits; other executions may wait for it,
 * too.
 */
import { consumerNames } from '../../consumers/schema.ts'
import { encodeJson } from '../../core/json.ts'
import { checkName } from '../../core/name.ts'
import { describe } from '../../core/options.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { contains, readPage } from '../../events/read/page.ts'
import { wakeSuspended } from '../dispatch/enqueue.ts'
import { refusal } from '../handler.ts'
import { dispatcherName } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import type { OutcomeEnd } from '../work/outcome.ts'
import { childStatuses } from './children.ts'
import type { HandlerRun, Wait } from './handler-run.ts'
import type { Call } from './replay.ts'
import { type CallRow, deliveredRow, storeCalls } from './stored-calls.ts'

export interface WaitOptions {
  /** The content that the data of the event must have, as jsonb's `@>` compares it. Default: any. */
  match?: Readonly<Record<string, unknown>> | undefined
  /** How long to wait; then there is no event. Default: no limit. */
  timeoutMs?: number | undefined
}

export async function waitForEvent(
  run: HandlerRun,
  type: string,
  { match, timeoutMs }: WaitOptions = {},
): Promise<RecordedEvent | undefined> {
  checkName('Event type', type)
  if (timeoutMs !== undefined) checkMs('timeoutMs', timeoutMs)
  const text = match === undefined ? undefined : matchText(run, type, match)
  return run.call('wait', type, call =>
    run.wait(call, {
      signal: { type, match: text },
      dueAt: timeoutMs === undefined ? undefined : run.dueAt(call, timeoutMs),
    }),
  )
}

function matchText({ log }: HandlerRun, type: string, match: unknown): string {
  if (typeof match !== 'object' || match === null || Array.isArray(match))
    throw refusal('A wait', 'match', `needs an object that the data must contain as "match", not ${describe(match)}.`)
  return encodeJson(match, { what: type, root: 'match', maxBytes: log.maxEventBytes }).text
}

export async function sleepFor(run: HandlerRun, name: string, ms: number): Promise<void> {
  checkMs('ms', ms)
  return run.call('sleep', name, call => run.wait(call, { dueAt: run.dueAt(call, ms) }))
}

/** A hundred years: a longer time is a mistake. */
const maxMs = 100 * 365 * 24 * 3600 * 1000

function checkMs(option: string, ms: number): void {
  if (typeof ms === 'number' && ms >= 0 && ms <= maxMs) return
  throw refusal('A wait', option, `needs milliseconds from 0 to a hundred years as "${option}", not ${describe(ms)}.`)
}

/** A later time is looked at in between: an `integer` holds the milliseconds of 24 days. */
const maxDelayMs = 20 * 24 * 3600 * 1000

/**
 * The outcome of a run that does nothing but wait. Its waits, and the ends that were delivered to it, are stored in the
 * transaction that suspends the execution, under the row of its workflow. Suspension does not count as an attempt.
 */
export function suspendedOutcome(run: HandlerRun): OutcomeEnd {
  const kinds = [...run.waiting.keys()].map(({ kind }) => kind)
  const outcome: OutcomeEnd & { delayMs: number | undefined } = {
    ...{ kind: 'suspend', activity: 'suspended', detail: [...new Set(kinds)].sort().join(', ') },
    // Known when the waits are stored, which is before it is read.
    delayMs: undefined,
    write: async tx => {
      outcome.delayMs = await storeWaits(run, tx)
    },
  }
  return outcome
}

/** Returns after which time the execution continues at the latest; undefined if no wait has a limit. */
async function storeWaits(run: HandlerRun, tx: Transaction): Promise<number | undefined> {
  const { log, execution, replay, waiting } = run
  const fresh = [...waiting].filter(([{ stored }]) => stored?.state !== 'waiting').sort(byOrdinal)
  const signals = new Map(
    fresh.flatMap(([call, wait]): [SignalWait, Call][] => (wait.signal ? [[signalOf(run, call, wait), call]] : [])),
  )
  const answered = new Map<Call, Pick<CallRow, 'position' | 'result'>>()
  for (const [signal, position] of await lookBack(log, tx, [...signals.keys()]))
    answered.set(signals.get(signal)!, { position })
  const children = fresh.filter(([, { child }]) => child !== undefined)
  const statuses = await childStatuses(
    log,
    tx,
    children.map(([, { child }]) => child!),
  )
  for (const [at, [call]] of children.entries())
    if (statuses[at] !== undefined) answered.set(call, { result: JSON.stringify(statuses[at]) })

  const now = log.clock.now().getTime()
  const waits = [...waiting].map(([call, { dueAt }]): CallRow => {
    const dueInMs = dueAt === undefined ? undefined : Math.max(0, dueAt - now)
    const state = answered.has(call) ? 'done' : 'waiting'
    return { call, state, turn: undefined, at: replay.now, dueInMs, ...answered.get(call) }
  })
  const rows = [...replay.unstored().map(deliveredRow), ...waits.filter(row => !isStored(row, replay.track))]
  if (rows.length > 0) await storeCalls(log, tx, execution, replay.track, rows)
  await register(
    run,
    tx,
    fresh.filter(([call]) => !answered.has(call)),
  )
  return nextDue(log, tx, execution.id, [...waiting.keys()])
}

function isStored({ call, state }: CallRow, track: number): boolean {
  const { stored, ordinal } = call
  return stored?.state === state && stored.track === track && stored.ordinal === ordinal
}

function byOrdinal([a]: [Call, Wait], [b]: [Call, Wait]): number {
  return a.ordinal - b.ordinal
}

function signalOf({ execution }: HandlerRun, { name }: Call, { signal }: Wait): SignalWait {
  const { id, correlationId, position } = execution
  const { type, match } = signal!
  return {
    ...{ execution: id, name, correlationId, type, since: position },
    match: match === undefined ? null : JSON.parse(match),
  }
}

async function register({ log, execution }: HandlerRun, tx: Executor, waits: readonly [Call, Wait][]): Promise<void> {
  const others = waits.filter(([, { signal, child }]) => signal !== undefined || child !== undefined)
  if (others.length === 0) return
  await tx.run(sql`/* workflows.register_waits */
    insert into ${workflowNames(log).workflow_waits}
      (execution, correlation_id, since, kind, name, ordinal, type, match, child)
    select ${execution.id}::uuid, ${execution.correlationId}::text, ${execution.position}::bigint, u.kind, u.name,
      u.ordinal, u.type, u.match::jsonb, u.child
    from unnest(
      ${others.map(([{ kind }]) => kind)}::text[],
      ${others.map(([{ name }]) => name)}::text[],
      ${others.map(([{ ordinal }]) => ordinal)}::integer[],
      ${others.map(([, { signal }]) => signal?.type ?? null)}::text[],
      ${others.map(([, { signal }]) => signal?.match ?? null)}::text[],
      ${others.map(([, { child }]) => child ?? null)}::text[]) as u(kind, name, ordinal, type, match, child)
    on conflict (execution, kind, name) do nothing`)
}

/** At once if one of them has ended since it was stored, while the execution ran for another reason. */
async function nextDue(log: Log, tx: Executor, execution: string, calls: readonly Call[]): Promise<number | undefined> {
  const [row] = await tx.run<{ ended: boolean; due_in: number | null }>(sql`/* workflows.next_due */
    select
      coalesce(bool_or(s.state <> 'waiting'), false) as ended,
      (extract(epoch from min(s.due_at) - ${log.names.clock}(min(s.due_at))) * 1000)::float8 as due_in
    from ${workflowNames(log).workflow_steps} as s
    join unnest(
      ${calls.map(({ kind }) => kind)}::text[],
      ${calls.map(({ name }) => name)}::text[]) as u(kind, name) on u.kind = s.kind and u.name = s.name
    where s.execution = ${execution}::uuid`)
  const { ended, due_in: dueInMs } = row!
  if (ended) return 0
  return dueInMs === null ? undefined : Math.min(maxDelayMs, Math.max(0, dueInMs))
}

/** An event that an execution waits for. */
export interface SignalWait {
  readonly execution: string
  readonly name: string
  readonly correlationId: string
  readonly type: string
  readonly match: unknown
  /** Only later events count. */
  readonly since: number
}

const pageSize = 200

/** Gives these events to the waits they fit; returns how many executions continue because of it. */
export async function answerWaits(
  log: Log,
  tx: Executor,
  routings: readonly { readonly event: RecordedEvent }[],
): Promise<number> {
  if (routings.length === 0) return 0
  const events = routings.map(({ event }) => event)
  const waits = await waitsFor(log, tx, events)
  if (waits.length === 0) return 0
  const executions = [...new Set(waits.map(({ execution }) => execution))]
  const answers = assign(waits, events, await givenTo(log, tx, executions))
  if (answers.size === 0) return 0
  await recordAnswers(log, tx, answers)
  return wakeSuspended(
    log,
    tx,
    [...answers.keys()].map(({ execution }) => execution),
  )
}

/** Which of these waits, which are not stored yet, have an answer in the log already. The caller holds the workflow. */
async function lookBack(
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

/** The events that waits of these executions were given before: events are dispatched again to a new handler. */
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
