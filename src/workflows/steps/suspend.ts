/**
 * The end of a run that waits: what it has heard and what it waits for are stored in the transaction that gives the execution
 * back, under the row of its workflow. Whatever may end a wait takes that row too, or comes by from time to time.
 */

import type { Executor, Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'
import type { Outcome } from '../work/outcome.ts'
import type { Attempt, Wait } from './attempt.ts'
import { childStatuses } from './child-waits.ts'
import { type CallRow, heardRow, storeCalls } from './remember.ts'
import type { Call } from './replay.ts'
import { lookBack, type SignalWait } from './waits.ts'

type Suspended = Pick<Outcome, 'kind' | 'told' | 'detail' | 'inside'> & { delayMs: number | undefined }

/** What is due later is looked at in between: `integer` holds no more milliseconds than 24 days have. */
const longestMs = 20 * 24 * 3600 * 1000

export function suspended(attempt: Attempt): Suspended {
  const kinds = [...attempt.waiting.keys()].map(({ kind }) => kind)
  const outcome: Suspended = {
    ...{ kind: 'suspend', told: 'suspended', detail: [...new Set(kinds)].sort().join(', ') },
    // Known when the waits are stored, which is before it is looked at.
    delayMs: undefined,
    inside: async tx => {
      outcome.delayMs = await storeWaits(attempt, tx)
    },
  }
  return outcome
}

/** Returns when the execution is to go on at the latest; undefined if no time is set. */
async function storeWaits(attempt: Attempt, tx: Transaction): Promise<number | undefined> {
  const { log, execution, replay, waiting } = attempt
  const fresh = [...waiting].filter(([{ stored }]) => stored?.state !== 'waiting').sort(byOrdinal)
  const signals = new Map(
    fresh.flatMap(([call, wait]): [SignalWait, Call][] => (wait.signal ? [[signalOf(attempt, call, wait), call]] : [])),
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
  const rows = [...replay.unstored().map(heardRow), ...waits.filter(row => !isStored(row, replay.track))]
  if (rows.length > 0) await storeCalls(log, tx, execution, replay.track, rows)
  await register(
    attempt,
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

function signalOf({ execution }: Attempt, { name }: Call, { signal }: Wait): SignalWait {
  const { id, correlationId, position } = execution
  const { type, match } = signal!
  return {
    ...{ execution: id, name, correlationId, type, since: position },
    match: match === undefined ? null : JSON.parse(match),
  }
}

async function register({ log, execution }: Attempt, tx: Executor, waits: readonly [Call, Wait][]): Promise<void> {
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

/** At once if one of them has ended since it was registered, while the execution ran for another reason. */
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
  return dueInMs === null ? undefined : Math.min(longestMs, Math.max(0, dueInMs))
}
