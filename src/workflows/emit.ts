/**
 * The results of handlers, and how they become events: plain data until the attempt is completed.
 *
 *     return emit('OrderCharged', { receipt })
 *     return [emit('OrderCharged', { receipt }), emit('MailAsked', { to }, { key: 'receipt' })]
 *     return batch(items.map(item => emit('ItemChecked', item)))            a fan-out, which a join can close
 *     return complete(tx => tx.query('insert …'), emit('OrderBooked', {}))   together with writes of its own
 *     return compensate('no stock left')                                     run the undos of the workflow
 *
 * An id follows from the event, the handler and a key, so a handler that is run again emits the same events, not more.
 * An event that is emitted because of an event of a batch keeps its place in the batch; `batch([…])` opens one inside of it.
 */

import { type Awaitable, isPromise } from '../core/core.ts'
import { type Named, nameOf } from '../core/definition.ts'
import { derivedId } from '../core/id.ts'
import { refuseUnknownOptions } from '../core/options.ts'
import type { Transaction } from '../database/database.ts'
import { lendTransaction } from '../database/handle.ts'
import { prepareAppend, writtenBy } from '../events/append/append.ts'
import type { Expected, StreamEvents } from '../events/append/prepare.ts'
import type { Append, AppendResult } from '../events/append/send.ts'
import type { EventMap, NewEventOf, RecordedEvent, UntypedEvents } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { contextOf, type Span } from '../telemetry/span.ts'
import { HopsExceeded, InvalidResult, TooManyEmitted } from './errors.ts'
import { type Attributes, type BatchPlace, checkAttributes, envelopeOf, headerOf, workflowStream } from './publish.ts'

const brand = Symbol('rillflow.emission')

/**
 * Where an emitted event goes, and when.
 *
 * @example
 * ```ts
 * const options: EmitOptions = { stream: 'order-1' }
 * ```
 */
export interface EmitOptions {
  /** Part of its id, with the event and the handler. Default: its type, numbered. */
  key?: string | undefined
  /** A UUID of its own instead. */
  id?: string | undefined
  /** An entity's stream. Default: the workflow's own, so that a fan-out never competes for the version of an entity. */
  stream?: string | undefined
  /** The version that stream must have. Default 'any'. */
  expected?: Expected | undefined
  headers?: Readonly<Record<string, unknown>> | undefined
  /** For the workflow, in addition to those that it has. */
  attributes?: Attributes | undefined
}

/** An event to be emitted. */
export interface Emission<Type extends string = string> {
  readonly kind: 'emission'
  readonly type: Type
  readonly data: unknown
  readonly options: EmitOptions
}

/**
 * `emit` of a context: it knows the events, and the types that the handler may emit.
 *
 * @example
 * ```ts
 * const ship = (emit: Emit<EventsOf<typeof events>>) => emit('OrderShipped', { carrier: 'Swift' })
 * ```
 */
export type Emit<M extends EventMap = UntypedEvents, E extends keyof M & string = keyof M & string> = <T extends E>(
  type: T,
  data: M[T],
  options?: EmitOptions,
) => Emission<T>

export interface BatchOptions {
  /** The join that waits for this batch, by name or definition: it is opened with it, and gets branches without an event. */
  join?: Named | undefined
  /** Part of the batch's id, with the event and the handler. Default: numbered. */
  key?: string | undefined
}

/** Events that belong together, each with its index. */
export interface Batch<Type extends string = string> {
  readonly kind: 'batch'
  readonly emissions: readonly Emission<Type>[]
  readonly options: BatchOptions
}

/** Writes that are part of the completion: they, the events and the end of the attempt are one transaction. */
export interface Completion<Type extends string = string> {
  readonly kind: 'complete'
  readonly work: (tx: Transaction) => Promise<unknown>
  readonly emitted: readonly (Emission<Type> | Batch<Type>)[]
}

/** The end of the workflow: no handler of it runs from then on, and the undos of its steps run. */
export interface Compensation<Type extends string = string> {
  readonly kind: 'compensate'
  readonly reason: string | undefined
  readonly emitted: readonly Emission<Type>[]
}

/**
 * The results that a handler may return.
 *
 * @example
 * ```ts
 * const nothing: HandlerResult = []
 * ```
 */
export type HandlerResult<Type extends string = string> =
  | undefined
  | null
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler without a return statement gives exactly that.
  | void
  | Emission<Type>
  | Batch<Type>
  | Completion<Type>
  | Compensation<Type>
  | readonly (Emission<Type> | Batch<Type>)[]

export function emit<Type extends string>(type: Type, data: unknown, options: EmitOptions = {}): Emission<Type> {
  refuseUnknownOptions('emit', options, ['key', 'id', 'stream', 'expected', 'headers', 'attributes'])
  return branded({ kind: 'emission', type, data, options })
}

/**
 * A fan-out: its events are one batch, which a join can close.
 *
 * @example
 * ```ts
 * const split = defineHandler('split', {
 *   events,
 *   on: 'OrderPlaced',
 *   run: (_, { emit }) => batch(['Swift', 'Slow'].map(carrier => emit('OrderShipped', { carrier }))),
 * })
 * ```
 */
export function batch<Type extends string>(
  emissions: readonly Emission<Type>[],
  options: BatchOptions = {},
): Batch<Type> {
  refuseUnknownOptions('batch', options, ['join', 'key'])
  return branded({ kind: 'batch', emissions, options })
}

/**
 * `work` may write to the database and nothing else: it runs in the transaction that completes the attempt.
 *
 * @example
 * ```ts
 * const note = defineHandler('note', {
 *   events,
 *   on: 'OrderPlaced',
 *   run: event => complete(tx => store.documents(customers).put(event.data.customer, ada, { tx })),
 * })
 * ```
 */
export function complete<Type extends string = never>(
  work: (tx: Transaction) => Promise<unknown>,
  ...emitted: readonly (Emission<Type> | Batch<Type>)[]
): Completion<Type> {
  return branded({ kind: 'complete', work, emitted })
}

/**
 * Completes the attempt and ends the workflow: its steps are undone, the newest first. Its events run no handler.
 *
 * @example
 * ```ts
 * const check = defineHandler('check', {
 *   events,
 *   on: 'OrderPlaced',
 *   run: ({ data }) => (data.cents > 1_000_000 ? compensate('too large to be true') : undefined),
 * })
 * ```
 */
export function compensate<Type extends string = never>(
  reason?: string,
  ...emitted: readonly Emission<Type>[]
): Compensation<Type> {
  return branded({ kind: 'compensate', reason, emitted })
}

export interface ReadResult {
  readonly work: Completion['work'] | undefined
  readonly emitted: readonly (Emission | Batch)[]
  /** Set if the workflow is to be compensated. */
  readonly compensation?: { readonly reason: string | undefined } | undefined
}

/** The result of a handler, in one form; a reason if it cannot be emitted. */
export function readResult(result: unknown): ReadResult | { readonly reason: string } {
  if (result === undefined || result === null) return { work: undefined, emitted: [] }
  if (isBranded(result) && result.kind === 'complete') {
    if (typeof result.work !== 'function') return { reason: 'complete takes a function first' }
    const read = readResult(result.emitted)
    return 'reason' in read ? read : { work: lent(result.work), emitted: read.emitted }
  }
  if (isBranded(result) && result.kind === 'compensate') {
    const read = readResult(result.emitted)
    return 'reason' in read ? read : { ...read, compensation: { reason: result.reason } }
  }
  const emitted: readonly unknown[] = Array.isArray(result) ? result : [result]
  for (const each of emitted) {
    if (!isBranded(each) || (each.kind !== 'emission' && each.kind !== 'batch'))
      return { reason: `${describe(each)} is neither emit(…) nor batch([…])` }
    if (each.kind !== 'batch') continue
    if (!Array.isArray(each.emissions)) return { reason: 'batch takes a list' }
    const other = each.emissions.find(member => !isBranded(member) || member.kind !== 'emission')
    if (other !== undefined) return { reason: `a batch has ${describe(other)} in it, which is not emit(…)` }
  }
  return { work: undefined, emitted: emitted as (Emission | Batch)[] }
}

/**
 * Revokes the transaction when the work has returned: code that it did not await must not write while positions are
 * drawn.
 */
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

function isBranded(value: unknown): value is Emission | Batch | Completion | Compensation {
  return typeof value === 'object' && value !== null && brand in value
}

function branded<T extends object>(value: T): T {
  return Object.defineProperty(value, brand, { value: true })
}

function describe(value: unknown): string {
  if (typeof value !== 'object' || value === null) return String(value)
  return Array.isArray(value) ? 'a list' : 'an object'
}

/** Appends prepared events in a transaction of the store's. */
export type AppendIn = (append: Append, tx: Transaction) => Promise<AppendResult[]>

export interface EmitLimits {
  readonly maxHops: number
  readonly maxEmitted: number
}

/** The handler that emits, and the event because of which it does. */
export interface Emitter {
  readonly handler: string
  readonly event: RecordedEvent
  /** The batches that emitted events belong to: those of the event, unless a join has closed the last of them. */
  readonly batches: readonly BatchPlace[]
  readonly emits?: readonly string[] | undefined
  /** Set for events of `onDeadLetter`: how often the handler has been dead-lettered for this event before. */
  readonly failure?: number | undefined
  /** Part of the ids, where one handler may run more than once for one event. */
  readonly about?: string | undefined
}

/** The events of an attempt, checked and ready to be appended. */
export interface Emitted {
  /** Undefined if only empty batches were opened. */
  readonly append: Append | undefined
  /** The batches each event is part of, for the count of open work in a branch. */
  readonly places: readonly (readonly BatchPlace[])[]
  readonly types: readonly string[]
  readonly opened: readonly OpenedBatch[]
}

/** A batch that begins here. */
export interface OpenedBatch {
  readonly id: string
  readonly size: number
  readonly join: string | undefined
  readonly outer: readonly BatchPlace[]
}

/** Undefined if there is nothing to emit; a promise only where a schema is asynchronous. */
export function prepareEmitted(
  log: Log,
  emitter: Emitter,
  emitted: readonly (Emission | Batch)[],
  limits: EmitLimits,
): Awaitable<Emitted | undefined> {
  const { handler, event } = emitter
  const total = emitted.reduce((sum, each) => sum + (each.kind === 'batch' ? each.emissions.length : 1), 0)
  const opened: OpenedBatch[] = []
  if (total === 0) {
    for (const each of emitted) if (each.kind === 'batch') openBatch(emitter, each, opened)
    return opened.length === 0 ? undefined : { append: undefined, places: [], types: [], opened }
  }
  if (total > limits.maxEmitted) throw new TooManyEmitted({ handler, emitted: total, maxEmitted: limits.maxEmitted })
  const { telemetry, schema } = log
  if (!telemetry.isTraced) return prepareSome(log, emitter, emitted, limits, opened)
  const fields = { handler, eventId: event.id }
  return telemetry.span({ name: 'workflows.emit', schema, fields }, async span => {
    const prepared = await prepareSome(log, emitter, emitted, limits, opened, span)
    if (prepared.append !== undefined) span.wrote(writtenBy(prepared.append))
    return prepared
  })
}

function prepareSome(
  log: Log,
  emitter: Emitter,
  emitted: readonly (Emission | Batch)[],
  limits: EmitLimits,
  opened: OpenedBatch[],
  span?: Span,
): Awaitable<Emitted> {
  const { handler, event } = emitter
  const hops = envelopeOf(event).hops + 1
  // An event that reports a failure of the last hop may go one hop further; events that follow from it may not.
  const maxHops = limits.maxHops + (emitter.failure === undefined ? 0 : 1)
  if (hops > maxHops) throw new HopsExceeded({ handler, hops, maxHops: limits.maxHops })
  const context = { ...contextOf(event.headers), ...span?.headers }
  const numbers = new Map<string, number>()
  const streams = new Map<
    string,
    { stream: string; events: NewEventOf<string, unknown>[]; expected?: StreamEvents['expected'] }
  >()
  const places: (readonly BatchPlace[])[] = []
  const add = (emission: Emission, batches: readonly BatchPlace[]): void => {
    refuseUndeclared(emitter, emission)
    const { stream = workflowStream(event.correlationId), expected } = emission.options
    const part = streams.get(stream) ?? { stream, events: [], ...(expected === undefined ? {} : { expected }) }
    part.events.push(eventOf(emitter, emission, batches, hops, numbers, context))
    streams.set(stream, part)
    places.push(batches)
  }
  for (const each of emitted) {
    if (each.kind === 'emission') add(each, emitter.batches)
    else {
      const id = openBatch(emitter, each, opened)
      for (const [index, member] of each.emissions.entries())
        add(member, [...emitter.batches, { id, index, size: each.emissions.length }])
    }
  }
  const ownIds = emitted.some(each =>
    (each.kind === 'batch' ? each.emissions : [each]).some(({ options }) => options.id !== undefined),
  )
  const unit = { checkIds: ownIds || emitter.failure !== undefined }
  const append = prepareAppend(log, [...streams.values()], {}, unit)
  const types = [...numbers.keys()]
  const done = (checked: Append): Emitted => ({ append: checked, places, types, opened })
  return isPromise(append) ? append.then(done) : done(append)
}

function eventOf(
  { handler, event, failure, about: place }: Emitter,
  { type, data, options }: Emission,
  batches: readonly BatchPlace[],
  hops: number,
  numbers: Map<string, number>,
  context: Readonly<Record<string, unknown>>,
): NewEventOf<string, unknown> {
  const number = (numbers.get(type) ?? 0) + 1
  numbers.set(type, number)
  const key = keyIn(place, options.key ?? `${type}#${number}`)
  const about = failure === undefined ? key : `failure ${failure}: ${key}`
  const { attributes } = options
  if (attributes !== undefined) checkAttributes(`The event ${type}`, attributes)
  const header = headerOf({ hops, handler, batches, attributes, ...(failure === undefined ? {} : { failed: handler }) })
  return {
    type,
    data,
    id: options.id ?? derivedId(event.createdAt, event.id, handler, about),
    headers: { ...context, ...options.headers, ...header },
    correlationId: event.correlationId,
    causationId: event.id,
    userId: event.userId,
  }
}

function keyIn(about: string | undefined, key: string): string {
  return about === undefined ? key : `${about}: ${key}`
}

function openBatch({ handler, event, batches, about }: Emitter, batch: Batch, opened: OpenedBatch[]): string {
  const key = keyIn(about, batch.options.key ?? `#${opened.length + 1}`)
  const id = derivedId(event.createdAt, event.id, handler, `batch ${key}`)
  const { join } = batch.options
  opened.push({ id, size: batch.emissions.length, join: join === undefined ? undefined : nameOf(join), outer: batches })
  return id
}

function refuseUndeclared({ handler, emits, failure }: Emitter, { type }: Emission): void {
  if (emits === undefined || failure !== undefined || emits.includes(type)) return
  throw new InvalidResult({ handler, reason: `${type} is not among the types it declares in emits` })
}

export interface AttemptResult {
  readonly emitted: number
  readonly events: readonly { readonly id: string; readonly type: string }[]
}

const maxNamed = 20

/**
 * The record of a completed attempt in the activity: the number of events it emitted, and the first of them by name.
 */
export function attemptResult(emitted: Pick<Emitted, 'append'> | undefined): AttemptResult | undefined {
  if (emitted?.append === undefined) return undefined
  const events: { id: string; type: string }[] = []
  for (const part of emitted.append.parts) {
    for (const { id, type } of part.events) {
      if (events.length === maxNamed) return { emitted: emitted.append.eventCount, events }
      events.push({ id, type })
    }
  }
  return { emitted: emitted.append.eventCount, events }
}
