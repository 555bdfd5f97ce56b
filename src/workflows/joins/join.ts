/**
 * Joins as they are registered: a handler that runs once for a whole batch, with the events that its branches came to, in
 * the order of the batch.
 *
 *     flows.on('OrderPlaced', { name: 'check' }, e => batch(e.data.items.map(item => emit('CheckAsked', { item }))))
 *     flows.on('CheckAsked', { name: 'look' }, async e => emit('OrderChecked', await look(e.data)))
 *     flows.join('OrderChecked', { name: 'cleared', of: 'batch', timeoutMs: 60_000 }, events => emit('OrderCleared', {}))
 *
 * What a handler emits for an event of a batch stays in the batch; what the join emits belongs to the batch around it.
 */
import type { Awaitable } from '../../core/core.ts'
import { InvalidOption } from '../../core/errors.ts'
import { checkWhole } from '../../core/whole.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../../events/definition.ts'
import type { EmissionOf, HandlerResult } from '../emit.ts'
import { type AnyHandlerOptions, defineHandler, type Handler, type HandlerOptions, type Run } from '../handler.ts'
import type { HandlerContext } from '../steps/context.ts'

/**
 * When a join has enough. `'all'`: every branch has an event or ended without one; one that failed fails the join at
 * once. `'all-settled'`: every branch has ended, however. `'first'`, `{ quorum }`: so many events are there.
 */
export type JoinPolicy = 'all' | 'all-settled' | 'first' | { readonly quorum: number }

type Unfit = 'timeoutMs' | 'ordered' | 'inline' | 'inlineMs' | 'onDead' | 'when' | 'transition' | 'concurrency'

export interface JoinOptions<M extends EventMap, T extends keyof M & string, E extends keyof M & string>
  extends Omit<HandlerOptions<M, T, E>, Unfit> {
  /** What it joins: the innermost batch that an event is part of. */
  of: 'batch'
  /** Default 'all'. */
  policy?: JoinPolicy | undefined
  /** How long it waits for its events, from the moment it is opened. Default: no limit. */
  timeoutMs?: number | undefined
  /** What comes of it then: a dead letter (default), or a run with what is there. */
  onTimeout?: 'dead-letter' | 'partial' | undefined
  /** How long one attempt of the handler may run. Default 30 000. */
  attemptTimeoutMs?: number | undefined
  /** The most that run at once, in all processes. Default: no limit. */
  concurrency?: number | undefined
}

/** What a join knows of its batch. */
export interface JoinInfo {
  readonly batchId: string
  readonly size: number
  /** Branches in which an execution was dead-lettered, and no event came of it. */
  readonly failed: readonly number[]
  /** Branches that ended without an event. */
  readonly empty: readonly number[]
  /** Whether it runs although some branches have not come to their end. */
  readonly isPartial: boolean
}

export interface JoinContext<M extends EventMap = UntypedEvents> extends HandlerContext<M> {
  readonly join: JoinInfo
}

export interface Joins<M extends EventMap> {
  /** Runs a handler once for each batch that has events of this type, when they are complete; see `batch([…])`. */
  join<T extends keyof M & string, E extends keyof M & string = keyof M & string>(
    types: T | readonly T[],
    options: JoinOptions<M, T, E>,
    run: (
      events: readonly RecordedEvent<Pick<M, T>>[],
      ctx: JoinContext<M>,
    ) => Awaitable<HandlerResult<EmissionOf<Pick<M, NoInfer<E>>>>>,
  ): void
}

export type AnyJoinOptions = JoinOptions<UntypedEvents, string, string>

export function defineJoin(types: string | readonly string[], options: AnyJoinOptions, run: Run): Handler {
  const { of, policy = 'all', timeoutMs, onTimeout = 'dead-letter', attemptTimeoutMs, ...rest } = options
  const { name } = rest
  if (of !== 'batch')
    throw new InvalidOption({ option: 'of', reason: `of join "${name}" must be 'batch', not ${String(of)}` })
  if (timeoutMs !== undefined) checkWhole('timeoutMs', timeoutMs, 1)
  if (attemptTimeoutMs !== undefined) checkWhole('attemptTimeoutMs', attemptTimeoutMs, 1)
  if (onTimeout !== 'dead-letter' && onTimeout !== 'partial')
    throw new InvalidOption({
      option: 'onTimeout',
      reason: `of join "${name}" must be 'dead-letter' or 'partial', not ${String(onTimeout)}`,
    })
  const stray = unfit.find(option => (rest as Record<string, unknown>)[option] !== undefined)
  if (stray !== undefined) throw new InvalidOption({ option: stray, reason: `is nothing that join "${name}" can have` })
  const list = typeof types === 'string' ? [types] : types
  if (list.includes('*'))
    throw new InvalidOption({ option: 'types', reason: `of join "${name}" have to be named one by one` })
  const given: AnyHandlerOptions = { ...rest, timeoutMs: attemptTimeoutMs }
  return defineHandler(list, given, run, {
    kind: 'join',
    join: { ...readPolicy(name, policy), timeoutMs, onTimeout },
  })
}

const unfit = ['ordered', 'inline', 'inlineMs', 'onDead', 'when', 'transition'] as const

function readPolicy(name: string, policy: unknown): { policy: Named; quorum?: number } {
  if (typeof policy === 'string' && (named as readonly string[]).includes(policy)) return { policy: policy as Named }
  if (typeof policy === 'object' && policy !== null && 'quorum' in policy) {
    checkWhole('policy.quorum', policy.quorum as number, 1)
    return { policy: 'quorum', quorum: policy.quorum as number }
  }
  throw new InvalidOption({
    option: 'policy',
    reason: `of join "${name}" must be 'all', 'all-settled', 'first' or { quorum }, not ${JSON.stringify(policy)}`,
  })
}

type Named = 'all' | 'all-settled' | 'first' | 'quorum'

const named = ['all', 'all-settled', 'first'] as const
