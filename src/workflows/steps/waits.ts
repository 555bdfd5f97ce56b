/**
 * Waits for events of the own workflow (signals), for timers and for child workflows: how a run that does nothing but wait
 * is suspended, and how an event finds the wait it ends.
 *
 *     waitForEvent ─► nothing else to do ─► suspended: waits stored under the workflow's row ─► look back in the log
 *     an event is dispatched, under the same row ─► the wait it fits is answered ─► its execution is woken
 *
 * Guarantee: no event is missed, whichever comes first. A wait is stored under the row of the workflow and then looks back,
 * from the beginning of the workflow to the dispatcher's checkpoint; every later event is dispatched under the same row, and
 * finds the wait. An event is given to one execution of a handler at most, the oldest event first, and of the executions that
 * wait the oldest first; which one has it is stored in `workflow_signals`. Other handlers may wait for it, too.
 *
 * With `since: 'event'` only events after the handler's own count, and each execution of the handler may be given them all.
 */
import { consumerNames } from '../../consumers/schema.ts'
import { encodeJson } from '../../core/json.ts'
import { checkName } from '../../core/name.ts'
import { describe, refuseUnknownOptions } from '../../core/options.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { contains, readPage } from '../../events/read/page.ts'
import { wakeSuspended } from '../dispatch/enqueue.ts'
import { maxWaitMs, refusal } from '../handler.ts'
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
  /**
   * 'workflow' (default): each event since the workflow began goes to one execution of the handler, the oldest first. 'event':
   * only events after the one that the handler runs for, and executions of the handler do not take them from each other.
   */
  since?: 'workflow' | 'event' | undefined
}

export async function waitForEvent(
  run: HandlerRun,
  type: string,
  options: WaitOptions = {},
): Promise<RecordedEvent | undefined> {
  refuseUnknownOptions('waitForEvent', options, ['match', 'timeoutMs', 'since'])
  const { match, timeoutMs, since = 'workflow' } = options
  checkName('Event type', type)
  if (timeoutMs !== undefined) checkMs('timeoutMs', timeoutMs)
  if (since !== 'workflow' && since !== 'event')
    throw refusal('A wait', 'since', `has ${describe(since)} as "since". It must be 'workflow' or 'event'.`)
  const text = match === undefined ? undefined : matchText(run, type, match)
  return run.call('wait', type, call =>
    run.wait(call, {
      signal: { type, match: text, isShared: since === 'event' },
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

/** The due time is the one that was given in the first run: it is stored with the wait. */
export async function sleepUntil(run: HandlerRun, name: string, at: Date): Promise<void> {
  if (!(at instanceof Date) || Number.isNaN(at.getTime()))
    throw refusal('A wait', 'at', `needs a valid Date as "at", not ${describe(at)}.`)
  return run.call('sleep', name, call => {
    const ms = Math.max(0, at.getTime() - run.log.clock.now().getTime())
    checkMs('at', ms)
    run.wait(call, { dueAt: run.dueAt(call, ms) })
  })
}

function checkMs(option: string, ms: number): void {
  if (typeof ms === 'number' && ms >= 0 && ms <= maxWaitMs) return
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
  const found = await lookBack(log, tx, [...signals.keys()])
  for (const [signal, position] of found) answered.set(signals.get(signal)!, { position })
  await recordTaken(log, tx, found)
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

function signalOf({ execution, handler }: HandlerRun, { name }: Call, { signal }: Wait): SignalWait {
  const { id, correlationId, position } = execution
  const { type, match, isShared } = signal!
  return {
    ...{ execution: id, name, correlationId, type, position, since: sinceOf(execution, type, isShared) },
    handler: isShared ? null : handler.name,
    match: match === undefined ? null : JSON.parse(match),
  }
}

/** Earlier events of the type that the handler itself runs for began other executions of it: they are not signals. */
function sinceOf({ position, event }: HandlerRun['execution'], type: string, isShared: boolean): number {
  return isShared || event?.type === type ? position : 0
}

async function register(
  { log, execution, handler }: HandlerRun,
  tx: Executor,
  waits: readonly [Call, Wait][],
): Promise<void> {
  const others = waits.filter(([, { signal, child }]) => signal !== undefined || child !== undefined)
  if (others.length === 0) return
  await tx.run(sql`/* workflows.register_waits */
    insert into ${workflowNames(log).workflow_waits}
      (execution, correlation_id, position, since, kind, name, ordinal, type, handler, match, child)
    select ${execution.id}::uuid, ${execution.correlationId}::text, ${execution.position}::bigint, u.since, u.kind, u.name,
      u.ordinal, u.type, u.handler, u.match::jsonb, u.child
    from unnest(
      ${others.map(([{ kind }]) => kind)}::text[],
      ${others.map(([{ name }]) => name)}::text[],
      ${others.map(([{ ordinal }]) => ordinal)}::integer[],
      ${others.map(([, { signal }]) => (signal === undefined ? execution.position : sinceOf(execution, signal.type, signal.isShared)))}::bigint[],
      ${others.map(([, { signal }]) => signal?.type ?? null)}::text[],
      ${others.map(([, { signal }]) => (signal?.isShared === false ? handler.name : null))}::text[],
      ${others.map(([, { signal }]) => signal?.match ?? null)}::text[],
      ${others.map(([, { child }]) => child ?? null)}::text[])
      as u(kind, name, ordinal, since, type, handler, match, child)
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
  /** The handler that takes the event from its other executions; null: it is not taken from them. */
  readonly handler: string | null
  /** Of the event that the execution runs for: the oldest execution comes first. */
  readonly position: number
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
  const answers = assign(waits, events, await givenTo(log, tx, waits))
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
  const given = await givenTo(log, tx, waits)
  const [row] = await tx.run<{ checkpoint: number }>(sql`/* workflows.dispatched */
    select checkpoint
    from ${consumerNames(log).consumers}
    where name = ${dispatcherName}::text`)
  const to = row?.checkpoint ?? 0
  const filter = { types: [...new Set(waits.map(({ type }) => type))], correlationId: first.correlationId }
  for (let after = Math.min(...waits.map(({ since }) => since)); after < to && found.size < waits.length; ) {
    const { events, reached } = await readPage(log, { filter, after, to, limit: pageSize }, tx)
    const open = waits.filter(wait => !found.has(wait))
    for (const [wait, position] of assign(open, events, given)) found.set(wait, position)
    after = reached
  }
  return found
}

/** In the order of the log: each event to the first wait of each handler, or of each execution, that it fits. */
function assign(waits: readonly SignalWait[], events: readonly RecordedEvent[], given: Given): Map<SignalWait, number> {
  const answers = new Map<SignalWait, number>()
  for (const event of events) {
    const served = new Set<string>()
    for (const wait of waits) {
      const receiver = receiverOf(wait)
      if (answers.has(wait) || served.has(receiver) || given.has(wait, event.position) || !isAnswer(wait, event))
        continue
      answers.set(wait, event.position)
      served.add(receiver)
    }
  }
  return answers
}

/** All executions of a handler in a workflow take an event together; one with `since: 'event'` alone. */
function receiverOf({ handler, correlationId, execution }: SignalWait): string {
  return handler === null ? execution : `${handler} ${correlationId}`
}

function isAnswer(wait: SignalWait, event: RecordedEvent): boolean {
  return (
    event.correlationId === wait.correlationId &&
    event.type === wait.type &&
    event.position > wait.since &&
    event.position !== wait.position &&
    (wait.match === null || contains(event.data, wait.match))
  )
}

async function waitsFor(log: Log, tx: Executor, events: readonly RecordedEvent[]): Promise<SignalWait[]> {
  const rows = await tx.run<Omit<SignalWait, 'correlationId'> & { correlation_id: string }>(sql`/* workflows.waits */
    select execution, name, correlation_id, type, match, handler, position, since
    from ${workflowNames(log).workflow_waits}
    where correlation_id = any(${[...new Set(events.map(({ correlationId }) => correlationId))]}::text[])
      and type = any(${[...new Set(events.map(({ type }) => type))]}::text[])
    order by position, execution, ordinal`)
  return rows.map(({ correlation_id: correlationId, ...wait }) => ({ ...wait, correlationId }))
}

/** The events that were given before: events are dispatched again to a new handler. */
interface Given {
  has(wait: SignalWait, position: number): boolean
}

async function givenTo(log: Log, tx: Executor, waits: readonly SignalWait[]): Promise<Given> {
  const own = await tx.run<{ execution: string; position: number }>(sql`/* workflows.given */
    select execution, position
    from ${workflowNames(log).workflow_steps}
    where execution = any(${[...new Set(waits.map(({ execution }) => execution))]}::uuid[])
      and kind = 'wait'
      and position is not null`)
  const taken = await tx.run<{ correlation_id: string; handler: string; position: number; execution: string }>(
    sql`/* workflows.taken */
      select correlation_id, handler, position, execution
      from ${workflowNames(log).workflow_signals}
      where correlation_id = any(${[...new Set(waits.map(({ correlationId }) => correlationId))]}::text[])
        and handler = any(${[...new Set(waits.map(({ handler }) => handler))]}::text[])`,
  )
  const ownKeys = new Set(own.map(({ execution, position }) => `${execution} ${position}`))
  const receivers = new Map<string, string>(
    taken.map(row => [`${row.handler} ${row.correlation_id} ${row.position}`, row.execution]),
  )
  return {
    has(wait, position) {
      if (ownKeys.has(`${wait.execution} ${position}`)) return true
      // An execution that begins anew, without its steps, gets its own events again.
      const receiver = wait.handler === null ? undefined : receivers.get(`${receiverOf(wait)} ${position}`)
      return receiver !== undefined && receiver !== wait.execution
    },
  }
}

/** These events belong to one execution of their handler from now on. */
async function recordTaken(log: Log, tx: Executor, answers: ReadonlyMap<SignalWait, number>): Promise<void> {
  const taken = [...answers].filter(([{ handler }]) => handler !== null)
  if (taken.length === 0) return
  await tx.run(sql`/* workflows.take_signals */
    insert into ${workflowNames(log).workflow_signals} (correlation_id, handler, position, execution)
    select *
    from unnest(
      ${taken.map(([{ correlationId }]) => correlationId)}::text[],
      ${taken.map(([{ handler }]) => handler)}::text[],
      ${taken.map(([, position]) => position)}::bigint[],
      ${taken.map(([{ execution }]) => execution)}::uuid[])
    on conflict do nothing`)
}

async function recordAnswers(log: Log, tx: Executor, answers: ReadonlyMap<SignalWait, number>): Promise<void> {
  const waits = [...answers.keys()]
  await recordTaken(log, tx, answers)
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
