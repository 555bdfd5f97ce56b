/**
 * From what a handler returned to the events that are appended: their ids, their place in batches, their distance from the
 * beginning. Everything that can be wrong with them by themselves is found here.
 *
 * An id follows from the event, the handler and a key, so a handler that is run again emits the same events, not more.
 * What is emitted for an event of a batch keeps its place in the batch; `batch([…])` opens one inside of it.
 */
import type { Awaitable } from '../core/core.ts'
import { isPromise } from '../core/core.ts'
import { derivedId } from '../core/derived-id.ts'
import { prepareAppend, writtenBy } from '../events/append/append.ts'
import type { StreamEvents } from '../events/append/prepare.ts'
import type { Append } from '../events/append/send.ts'
import type { NewEventOf, RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { contextOf, type Span } from '../telemetry/span.ts'
import type { Batch, Emission } from './emit.ts'
import { type BatchPlace, envelopeOf, headerOf } from './envelope.ts'
import { HopsExceeded, InvalidResult, TooManyEmitted } from './errors.ts'
import { streamOf } from './stream.ts'

export interface EmitLimits {
  readonly maxHops: number
  readonly maxEmitted: number
}

/** Who emits, and because of what. */
export interface Emitter {
  readonly handler: string
  readonly event: RecordedEvent
  /** The batches that what is emitted belongs to; those of the event, unless a join has closed the last of them. */
  readonly batches: readonly BatchPlace[]
  readonly emits?: readonly string[] | undefined
  /** Set for what tells of the handler's failure: how often it has failed for good before. */
  readonly failure?: number | undefined
  /** What else ids follow from, where one handler may run more than once for one event. */
  readonly about?: string | undefined
}

export interface Emitted {
  /** Undefined if only empty batches were opened. */
  readonly append: Append | undefined
  /** The batches each event is part of, for the count of what is still open in a branch. */
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
  // What tells of an event that went too far goes one hop further; what is told because of that does not.
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
    const { stream = streamOf(event.correlationId), expected } = emission.options
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
  const header = headerOf({ hops, handler, batches, ...(failure === undefined ? {} : { failed: handler }) })
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
  opened.push({ id, size: batch.emissions.length, join: batch.options.join, outer: batches })
  return id
}

function refuseUndeclared({ handler, emits, failure }: Emitter, { type }: Emission): void {
  if (emits === undefined || failure !== undefined || emits.includes(type)) return
  throw new InvalidResult({ handler, reason: `${type} is not among the types it declares in emits` })
}
