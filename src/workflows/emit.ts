/**
 * What a handler returns: events to be emitted, plain data until its attempt is completed.
 *
 *     return emit('OrderCharged', { receipt })
 *     return [emit('OrderCharged', { receipt }), emit('MailAsked', { to }, { key: 'receipt' })]
 *     return batch(items.map(item => emit('ItemChecked', item)))            a fan-out, which a join can close
 *     return complete(tx => tx.query('insert …'), emit('OrderBooked', {}))   together with writes of its own
 */
import type { Transaction } from '../database/database.ts'
import { lendTransaction } from '../database/handle.ts'
import type { Expected } from '../events/append/prepare.ts'
import type { EventMap } from '../events/definition.ts'

const brand = Symbol('rillflow.emission')

export interface EmitOptions {
  /** What makes its id, with the event and the handler; default: its type, numbered. */
  key?: string | undefined
  /** A UUID of its own instead. */
  id?: string | undefined
  /** Default: the workflow's own stream. */
  stream?: string | undefined
  /** The version that stream must have. Default 'any'. */
  expected?: Expected | undefined
  headers?: Readonly<Record<string, unknown>> | undefined
}

/** An event that is to be. */
export interface Emission<Type extends string = string, Data = unknown> {
  readonly kind: 'emission'
  readonly type: Type
  readonly data: Data
  readonly options: EmitOptions
}

export interface BatchOptions {
  /** The join that waits for this batch: it is opened with it, and hears of branches that end without an event. */
  join?: string | undefined
  /** What makes the batch's id, with the event and the handler; default: numbered. */
  key?: string | undefined
}

/** Events that belong together, told apart by their index. */
export interface Batch<E extends Emission = Emission> {
  readonly kind: 'batch'
  readonly emissions: readonly E[]
  readonly options: BatchOptions
}

/** Writes that are part of the completion: they, the events and the end of the attempt are one transaction. */
export interface Completion<E extends Emission = Emission> {
  readonly kind: 'complete'
  readonly work: (tx: Transaction) => Promise<unknown>
  readonly emitted: readonly (E | Batch<E>)[]
}

/** What may be emitted: one kind per type of the map, told apart by `type`. */
export type EmissionOf<M extends EventMap> = { [T in keyof M & string]: Emission<T, M[T]> }[keyof M & string]

export type HandlerResult<E extends Emission = Emission> =
  | undefined
  | null
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler without a return statement gives exactly that.
  | void
  | E
  | Batch<E>
  | Completion<E>
  | readonly (E | Batch<E>)[]

export function emit<Type extends string, Data>(
  type: Type,
  data: Data,
  options: EmitOptions = {},
): Emission<Type, Data> {
  return branded({ kind: 'emission', type, data, options })
}

export function batch<E extends Emission>(emissions: readonly E[], options: BatchOptions = {}): Batch<E> {
  return branded({ kind: 'batch', emissions, options })
}

/** `work` may write to the database and nothing else: it runs in the transaction that completes the attempt. */
export function complete<E extends Emission = never>(
  work: (tx: Transaction) => Promise<unknown>,
  ...emitted: readonly (E | Batch<E>)[]
): Completion<E> {
  return branded({ kind: 'complete', work, emitted })
}

/** What was returned, in one form; a reason if it is nothing that can be emitted. */
export function readResult(result: unknown): ReadResult | { readonly reason: string } {
  if (result === undefined || result === null) return { work: undefined, emitted: [] }
  if (isBranded(result) && result.kind === 'complete') {
    if (typeof result.work !== 'function') return { reason: 'complete takes a function first' }
    const read = readResult(result.emitted)
    return 'reason' in read ? read : { work: lent(result.work), emitted: read.emitted }
  }
  const emitted: readonly unknown[] = Array.isArray(result) ? result : [result]
  for (const each of emitted) {
    if (!isBranded(each) || each.kind === 'complete')
      return { reason: `${describe(each)} is neither emit(…) nor batch([…])` }
    if (each.kind !== 'batch') continue
    if (!Array.isArray(each.emissions)) return { reason: 'batch takes a list' }
    const stranger = each.emissions.find(member => !isBranded(member) || member.kind !== 'emission')
    if (stranger !== undefined) return { reason: `a batch has ${describe(stranger)} in it, which is not emit(…)` }
  }
  return { work: undefined, emitted: emitted as (Emission | Batch)[] }
}

/** The transaction is taken away when the work has returned: what it did not wait for must not write while positions are drawn. */
function lent(work: Completion['work']): Completion['work'] {
  return async tx => {
    const { handle, shut } = lendTransaction(tx)
    try {
      return await work(handle)
    } finally {
      shut()
    }
  }
}

export interface ReadResult {
  readonly work: Completion['work'] | undefined
  readonly emitted: readonly (Emission | Batch)[]
}

function isBranded(value: unknown): value is Emission | Batch | Completion {
  return typeof value === 'object' && value !== null && brand in value
}

function branded<T extends object>(value: T): T {
  return Object.defineProperty(value, brand, { value: true })
}

function describe(value: unknown): string {
  if (typeof value !== 'object' || value === null) return String(value)
  return Array.isArray(value) ? 'a list' : 'an object'
}
