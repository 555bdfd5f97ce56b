/**
 * Breadcrumbs, for development: what one request has touched, and what came of it.
 *
 *     const { value, crumbs, mermaid } = await store.trace(async () => {
 *       await placeOrder('order-42')
 *       await store.projections.waitFor('orders', …)      what runs in a daemon is seen as long as the function does
 *     })
 *
 * What the function itself does is known by its asynchronous context. What follows from it, a projection or a handler,
 * runs elsewhere, and is known by the correlation id of the events: theirs are collected as they are written. Somebody
 * else's work on the same events, at the same time, is therefore in it; other events of the same batch are not.
 *
 * While nobody traces, nothing is subscribed, and contexts are not followed (which would make every promise dearer).
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { InvalidOption } from '../core/errors.ts'
import { drawCrumbs } from './diagram.ts'
import type { Span, SpanEvent } from './span.ts'
import { channels } from './telemetry.ts'

export interface Trace<T> {
  /** What the function gave back. */
  readonly value: T
  /** In the order they began. */
  readonly crumbs: readonly Crumb[]
  /** False if there were more than are kept. */
  readonly isWhole: boolean
  /** A sequence diagram of Mermaid. */
  mermaid(): string
}

/** One thing that was done. */
export interface Crumb {
  readonly kind: CrumbKind
  /** The collection, consumer, subscription, handler or schedule; of an append, its streams. */
  readonly name: string
  /** What was done, in a word or two: `OrderPlaced`, `put customers`. */
  readonly what: string
  /** The crumb it is because of, by its place among the crumbs; undefined if it is the request itself. */
  readonly from: number | undefined
  /** The events it wrote. */
  readonly events: readonly SpanEvent[]
  /** Undefined if it had not ended. */
  readonly durationMs: number | undefined
  readonly error: unknown
}

export type CrumbKind =
  | 'append'
  | 'save'
  | 'document'
  | 'projection'
  | 'consumer'
  | 'subscription'
  | 'handler'
  | 'emit'
  | 'schedule'

export interface TraceOptions {
  /** How many crumbs are kept. Default 1000. */
  maxCrumbs?: number | undefined
}

interface Recording {
  readonly schema: string
  readonly crumbs: Growing[]
  readonly maxCrumbs: number
  /** The workflows that its events belong to. */
  readonly correlations: Set<string>
  /** By event: the crumb that wrote it. */
  readonly writers: Map<string, number>
  isWhole: boolean
}

type Growing = { -readonly [K in keyof Crumb]: Crumb[K] }

/** Where the code that runs now is: in whose recording, inside of which crumb. */
interface Place {
  readonly recording: Recording
  readonly crumb: number | undefined
}

const places = new AsyncLocalStorage<Place | undefined>()
let tracing = 0

export async function recordTrace<T>(
  schema: string,
  work: () => Promise<T>,
  { maxCrumbs = 1000 }: TraceOptions = {},
): Promise<Trace<T>> {
  if (!Number.isSafeInteger(maxCrumbs) || maxCrumbs < 1)
    throw new InvalidOption({ option: 'maxCrumbs', reason: `must be a whole number from 1, not ${String(maxCrumbs)}` })
  const lists = { crumbs: [], correlations: new Set<string>(), writers: new Map<string, number>() }
  const recording: Recording = { schema, maxCrumbs, isWhole: true, ...lists }
  const onSpan = (message: unknown): void => hearSpan(recording, message as Span)
  const onDocuments = (message: unknown): void => hearDocuments(recording, message as DocumentsTouched)
  subscribe(channels.span, onSpan)
  subscribe(channels.documents, onDocuments)
  tracing++
  try {
    const value = await places.run({ recording, crumb: undefined }, work)
    const crumbs: readonly Crumb[] = [...recording.crumbs]
    return { value, crumbs, isWhole: recording.isWhole, mermaid: () => drawCrumbs(crumbs, recording.isWhole) }
  } finally {
    unsubscribe(channels.span, onSpan)
    unsubscribe(channels.documents, onDocuments)
    if (--tracing === 0) places.disable()
  }
}

function hearSpan(recording: Recording, span: Span): void {
  if (span.schema !== recording.schema) return
  const place = places.getStore()
  if (span.causes.length === 0) {
    if (place?.recording === recording) follow(recording, span, place.crumb, span.fields)
    return
  }
  const own = span.causes.filter(cause => recording.correlations.has(cause.correlationId))
  const isOurs = own.length > 0 && span.fields.kind !== 'dispatcher'
  // What a daemon does for others is not ours, even if it was started inside of the request.
  if (!isOurs && place?.recording === recording) span.enter(inside => places.run(undefined, inside))
  if (isOurs)
    follow(recording, span, recording.writers.get(own[0]!.id), { ...span.fields, types: own.map(({ type }) => type) })
}

function follow(recording: Recording, span: Span, from: number | undefined, fields: Record<string, unknown>): void {
  const { kind, name, what } = describe(span.name, fields)
  const at = add(recording, { kind, name, what, from, events: [], durationMs: undefined, error: undefined })
  if (at === undefined) return
  span.enter(inside => places.run({ recording, crumb: at }, inside))
  span.onWrite(events => note(recording, at, events))
  span.onEnd(({ durationMs, error }) => {
    Object.assign(recording.crumbs[at]!, { durationMs, error })
  })
}

function note(recording: Recording, at: number, events: readonly SpanEvent[]): void {
  const crumb = recording.crumbs[at]!
  crumb.events = events
  if (writing.has(crumb.kind)) crumb.what = [...new Set(events.map(({ type }) => type))].join(', ') || crumb.what
  for (const { id, correlationId } of events) {
    recording.correlations.add(correlationId)
    recording.writers.set(id, at)
  }
}

const writing: ReadonlySet<CrumbKind> = new Set(['append', 'save', 'emit', 'schedule'])

function describe(name: Span['name'], fields: Record<string, unknown>): Pick<Crumb, 'kind' | 'name' | 'what'> {
  const streams = ((fields.streams ?? []) as readonly string[]).join(', ')
  const types = [...new Set((fields.types ?? []) as readonly string[])].join(', ')
  switch (name) {
    case 'events.append':
      return { kind: 'append', name: streams, what: 'nothing' }
    case 'sessions.save': {
      const documents = (fields.documents ?? []) as readonly { collection: string }[]
      return { kind: 'save', name: streams, what: [...new Set(documents.map(each => each.collection))].join(', ') }
    }
    case 'projections.inline':
      return { kind: 'projection', name: String(fields.consumer), what: `${types} (inline)` }
    case 'consumers.batch':
    case 'consumers.replay': {
      const kind = fields.kind === 'projection' ? 'projection' : 'consumer'
      const what = name === 'consumers.replay' ? `${types} (replayed)` : types
      return { kind, name: String(fields.consumer), what }
    }
    case 'subscriptions.deliver':
      return { kind: 'subscription', name: String(fields.subscription), what: types }
    case 'workflows.run':
      return { kind: 'handler', name: String(fields.handler), what: `${types}, attempt ${String(fields.attempt)}` }
    case 'workflows.emit':
      return { kind: 'emit', name: String(fields.handler), what: 'nothing' }
    case 'workflows.schedule':
      return { kind: 'schedule', name: String(fields.schedule), what: 'nothing' }
  }
}

interface DocumentsTouched {
  readonly schema: string
  readonly collection: string
  readonly happened: 'read' | 'written'
  readonly statement: string
  readonly documents: number
}

function hearDocuments(recording: Recording, touched: DocumentsTouched): void {
  const place = places.getStore()
  if (place?.recording !== recording || touched.schema !== recording.schema) return
  const { collection, statement, documents } = touched
  const verb = statement.slice(statement.indexOf('.') + 1).replaceAll('_', ' ')
  const what = `${verb}, ${documents} ${documents === 1 ? 'document' : 'documents'}`
  add(recording, {
    ...{ kind: 'document', name: collection, what, from: place.crumb },
    ...{ events: [], durationMs: undefined, error: undefined },
  })
}

/** The place of the crumb; undefined if there is no room for it. */
function add(recording: Recording, crumb: Growing): number | undefined {
  if (recording.crumbs.length < recording.maxCrumbs) return recording.crumbs.push(crumb) - 1
  recording.isWhole = false
  return undefined
}
