/**
 * Undos: a named handler and plain data, recorded before the step they undo is run, so that there is none that could have
 * had its effect without one. What the step came to is added when it is known; if it never is, the undo is told so.
 *
 *     recorded ──► running ──► done · failed
 */

import type { Awaitable } from '../../core/core.ts'
import { InvalidOption } from '../../core/errors.ts'
import { encodeJson } from '../../core/json.ts'
import { nearestName } from '../../core/nearest.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { UntypedEvents } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import type { HandlerResult } from '../emit.ts'
import { ExecutionLost, HandlerNotFound, NonRetryable } from '../errors.ts'
import { type AnyHandlerOptions, defineHandler, type Handler, type HandlerOptions } from '../handler.ts'
import { workflowNames } from '../schema.ts'

/** What an undo is told of the step it undoes. */
export interface UndoneStep {
  readonly name: string
  /** Whether the step is known to have come to its end; if not, it may or may not have had its effect. */
  readonly isKnown: boolean
  /** What the step returned; undefined if that is not known. */
  readonly result: unknown
}

/** How an undo is run: as every handler is, except that it is for no event. */
export type UndoOptions = Pick<
  HandlerOptions<UntypedEvents, string, string>,
  | 'version'
  | 'retries'
  | 'backoff'
  | 'isRetryable'
  | 'timeoutMs'
  | 'deadlineMs'
  | 'priority'
  | 'delayMs'
  | 'rate'
  | 'init'
  | 'emits'
> & {
  /** The most that run at once, in all processes. Default: no limit. */
  concurrency?: number | undefined
}

/**
 * `data` is what was given to the step. What it returns may be emitted and is stored with its end, but runs no handlers:
 * its workflow is being undone.
 */
export type UndoRun<Data, Context> = (data: Data, step: UndoneStep, ctx: Context) => Awaitable<HandlerResult>

/** What the code of an undo is called with in the place of an event. */
interface UndoInput {
  readonly data: unknown
  readonly step: UndoneStep
}

export function defineUndo(name: string, options: UndoOptions, run: UndoRun<never, never>): Handler {
  if (typeof run !== 'function') throw new InvalidOption({ option: 'run', reason: `of undo "${name}" is no function` })
  const call = (input: unknown, ctx: never): Awaitable<HandlerResult> => {
    const { data, step } = input as UndoInput
    return run(data as never, step, ctx)
  }
  return defineHandler(undefined, { ...options, name } as AnyHandlerOptions, call, { kind: 'undo' })
}

/** As a step asks for it. */
export interface UndoRequest {
  /** The name of an undo registered with `flows.undo`. */
  readonly handler: string
  readonly data?: unknown
}

/** The step that an undo belongs to, and the attempt that is about to run it. */
export interface UndoPlace {
  readonly executionId: string
  readonly fence: number
  /** Which kind of step it is, and its name, unique among those of its kind in the execution. */
  readonly kind: string
  readonly step: string
}

/** Before the step is run, under the fence: the row of the attempt is held, so that compensation waits for one or the other. */
export async function recordUndo(log: Log, executor: Executor, place: UndoPlace, undo: UndoRequest): Promise<void> {
  const { executionId, fence, kind, step } = place
  const { text } = encodeJson(undo.data ?? null, {
    what: `undo ${undo.handler}`,
    root: 'data',
    maxBytes: log.maxEventBytes,
  })
  const [row] = await executor.run<{
    held: boolean
    undoing: boolean
    recorded: boolean
  }>(sql`/* workflows.record_undo */
    with held as materialized (
      select x.id, x.position, x.correlation_id, x.undo_id
      from ${workflowNames(log).workflow_executions} as x
      where x.id = ${executionId}::uuid
        and x.fence = ${fence}::bigint
        and x.state = 'running'
      for share),
    recorded as (
      insert into ${workflowNames(log).workflow_undos} as u
        (id, position, execution, correlation_id, handler, kind, step, data, at)
      select nextval(${workflowNames(log).workflow_undos_id.quoted}::regclass), held.position, held.id,
        held.correlation_id, ${undo.handler}::text, ${kind}::text, ${step}::text, ${text}::jsonb, ${log.names.clock}(held.id)
      from held
      where held.undo_id is null
        and exists (
          select
          from ${workflowNames(log).workflow_routes} as r
          where r.handler = ${undo.handler}::text
            and r.kind = 'undo')
      -- An earlier attempt had begun the step. What it may have come to is not what it comes to now.
      on conflict (execution, kind, step) do update
      set handler = excluded.handler,
        data = excluded.data,
        is_known = false,
        result = null
      returning u.id)
    select
      exists (select from held) as held,
      exists (select from held where undo_id is not null) as undoing,
      exists (select from recorded) as recorded`)
  const { held, undoing, recorded } = row!
  if (recorded) return
  if (!held) throw new ExecutionLost({ handler: step, executionId })
  if (undoing) throw new InvalidOption({ option: 'undo', reason: `of step "${step}": an undo cannot be undone itself` })
  throw await unknownUndo(log, executor, undo.handler)
}

async function unknownUndo(log: Log, executor: Executor, handler: string): Promise<Error> {
  const rows = await executor.run<{ handler: string }>(sql`/* workflows.undo_names */
    select distinct handler
    from ${workflowNames(log).workflow_routes}
    where kind = 'undo'
    order by handler`)
  const nearest = nearestName(
    handler,
    rows.map(row => row.handler),
  )
  return new HandlerNotFound({ handler, nearest })
}

/** In the transaction that records what the step came to, under the fence there. */
export async function settleUndo(
  log: Log,
  executor: Executor,
  { executionId, kind, step }: Pick<UndoPlace, 'executionId' | 'kind' | 'step'>,
  result: string,
): Promise<void> {
  await executor.run(sql`/* workflows.settle_undo */
    update ${workflowNames(log).workflow_undos}
    set is_known = true,
      result = ${result}::jsonb
    where execution = ${executionId}::uuid
      and kind = ${kind}::text
      and step = ${step}::text
      and state = 'recorded'`)
}

/** What the undo of this id is run with. */
export async function loadUndo(log: Log, id: number): Promise<UndoInput> {
  const [row] = await log.database.run<{
    data: unknown
    step: string
    is_known: boolean
    result: unknown
  }>(sql`/* workflows.load_undo */
    select data, step, is_known, result
    from ${workflowNames(log).workflow_undos}
    where id = ${id}::bigint`)
  if (row === undefined) throw new NonRetryable({ reason: `Undo ${id} is not recorded any more.` })
  const { data, step: name, is_known: isKnown, result } = row
  return { data, step: { name, isKnown, result: isKnown ? result : undefined } }
}
