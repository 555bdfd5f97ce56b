/**
 * Undos: a named handler and plain data, recorded before the step that they undo runs, so that no step can have had its
 * effect without its undo. The result of the step is added when it is known; if it never is, `isKnown` says so.
 *
 *     recorded ──► running ──► done · failed
 */

import type { Awaitable } from '../../core/core.ts'
import { checkDefinition, nameOf } from '../../core/definition.ts'
import { encodeJson } from '../../core/json.ts'
import { nearestName } from '../../core/name.ts'
import { refuseUnknownOptions } from '../../core/options.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { EventDefinitions, EventMap, EventsCarried, UntypedEvents } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import type { HandlerResult } from '../emit.ts'
import { ExecutionLost, HandlerNotFound, NonRetryable } from '../errors.ts'
import { type AnyHandlerOptions, type Handler, handlerOf, type RunOptions, refusal, undoOptions } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import type { HandlerContext } from '../steps/context.ts'

/** The step that an undo undoes. */
export interface UndoneStep {
  readonly name: string
  /** Whether the step is known to have ended; if not, it may or may not have had its effect. */
  readonly isKnown: boolean
  /** The result of the step; undefined if it is not known. */
  readonly result: unknown
}

/** How an undo runs: as every handler does, except that it is for no event. */
export interface UndoOptions<Data, M extends EventMap, E extends keyof M & string> extends RunOptions {
  /** The events of the store; only their types are used. */
  events?: EventDefinitions<M> | undefined
  /** The types it may emit; others are refused. Default: any. */
  emits?: readonly E[] | undefined
  /**
   * `data` was given with the step. The events it emits are stored with its completion, but run no handlers: its
   * workflow is being undone.
   */
  run(data: Data, step: UndoneStep, ctx: HandlerContext<M, NoInfer<E>>): Awaitable<HandlerResult<NoInfer<E>>>
}

/** An undo, as it was defined. */
export interface Undo<Data = never, M extends EventMap = never> extends Handler<M> {
  /** Absent at run time: it carries the type of the data to the step that names the undo. */
  readonly '~data'?: ((data: Data) => void) | undefined
}

/** The input of an undo, in the place of an event. */
interface UndoInput {
  readonly data: unknown
  readonly step: UndoneStep
}

/**
 * Defines what takes back a step, when its workflow is compensated or cancelled.
 *
 * @example
 * ```ts
 * const refund = defineUndo('refund', {
 *   run: async (data: { cents: number }, step) => console.log(`refund ${data.cents} of ${String(step.result)}`),
 * })
 * ```
 */
export function defineUndo<
  Data = unknown,
  M extends EventMap = UntypedEvents,
  E extends keyof M & string = keyof M & string,
>(name: string, definition: UndoOptions<Data, M, E>): Undo<Data, EventsCarried<M>> {
  checkDefinition('defineUndo', name, definition)
  const what = `Undo "${name}"`
  refuseUnknownOptions(what, definition, undoOptions)
  const { run } = definition
  const call = (input: unknown, ctx: unknown): Awaitable<HandlerResult> => {
    const { data, step } = input as UndoInput
    return run(data as Data, step, ctx as HandlerContext<M, E>)
  }
  const options = { ...definition, run: typeof run === 'function' ? call : run }
  return handlerOf('undo', name, options as unknown as AnyHandlerOptions, undefined)
}

/** The undo of a step: the definition or the name of one, and data for it. */
export interface UndoRequest<Data = unknown> {
  readonly by: string | Undo<Data>
  readonly data?: NoInfer<Data> | undefined
}

/** The step that an undo belongs to, and the attempt that is about to run it. */
export interface UndoPlace {
  readonly executionId: string
  readonly fence: number
  /** Which kind of step it is, and its name, unique among those of its kind in the execution. */
  readonly kind: string
  readonly step: string
}

/** Before the step runs, under the fence: the row of the attempt is locked, so a compensation finds the undo or no step. */
export async function recordUndo(log: Log, executor: Executor, place: UndoPlace, undo: UndoRequest): Promise<void> {
  const { executionId, fence, kind, step } = place
  const handler = nameOf(undo.by)
  const { text } = encodeJson(undo.data ?? null, {
    what: `undo ${handler}`,
    root: 'data',
    maxBytes: log.maxEventBytes,
  })
  const [drawn] = await executor.runArrays(sql`/* workflows.draw_undo */
    select (${workflowNames(log).workflow_draw_undo}(p_count => 1))[1]`)
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
      select ${drawn![0] as number}::bigint, held.position, held.id,
        held.correlation_id, ${handler}::text, ${kind}::text, ${step}::text, ${text}::jsonb,
        ${log.names.clock}(held.id)
      from held
      where held.undo_id is null
        and exists (
          select
          from ${workflowNames(log).workflow_routes} as r
          where r.handler = ${handler}::text
            and r.kind = 'undo')
      -- An earlier attempt had begun the step; its result, if any, is not that of this one.
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
  if (undoing)
    throw refusal(`Step "${step}"`, 'undo', 'is part of an undo, which cannot be undone itself. Leave out "undo".')
  throw await unknownUndo(log, executor, handler)
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

/** Adds the result of the step, in the transaction that records it, under the fence there. */
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

/** The input of the undo with this id. */
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
  if (row === undefined) throw new NonRetryable({ reason: `Undo ${id} is no longer recorded.` })
  const { data, step: name, is_known: isKnown, result } = row
  return { data, step: { name, isKnown, result: isKnown ? result : undefined } }
}
