/**
 * Breadcrumbs, for development: what one request has read and written, and what happened because of it.
 *
 *     const { value, crumbs, mermaid } = await store.trace(async () => {
 *       await placeOrder('order-42')
 *       await store.consumers.waitFor(orders, …)      the work of runners is recorded until the function ends
 *     })
 *
 * The actions of the function itself are known by its asynchronous context. Work that follows from them, in a
 * projection or a handler, runs elsewhere and is known by the correlation ids of the events, which are collected as the
 * events are written. So the trace also has the work of other code on the same events at the same time; other events of
 * the same batch are not in it. Schedules that this process runs during the trace are recorded as well.
 *
 * Without a trace nothing is subscribed and contexts are not followed, which would make every promise slower.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { InvalidOption } from '../core/errors.ts'
import { describe } from '../core/options.ts'
import { drawCrumbs } from './mermaid.ts'
import type { Span, SpanEvent } from './span.ts'
import { channels } from './telemetry.ts'

/** The recorded actions of a store in a stretch of code. */
export interface Trace<T> {
  /** The result of the function. */
  readonly value: T
  /** In the order they began. */
  readonly crumbs: readonly Crumb[]
  /** False if there were more than `maxCrumbs`. */
  readonly isWhole: boolean
  /** A sequence diagram of Mermaid. */
  mermaid(): string
}

/** One thing that was done. */
export interface Crumb {
  readonly kind: CrumbKind
  /** The collection, consumer, subscription, handler or schedule; of an append, its streams. */
  readonly name: string
  /** The action, in a word or two: `OrderPlaced`, `put customers`. */
  readonly what: string
  /** The index of the crumb that caused it; undefined if the request itself did. */
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
  /** How many crumbs are recorded. Default 1000. */
  maxCrumbs?: number | undefined
}

interface Recording {
  readonly schema: string
  readonly crumbs: Growing[]
  readonly maxCrumbs: number
  /** The correlation ids of its events. */
  readonly correlations: Set<string>
  /** The crumb that wrote each event, by the id of the event. */
  readonly writers: Map<string, number>
  isWhole: boolean
}

type Growing = { -readonly [K in keyof Crumb]: Crumb[K] }

/** The recording that the code which runs now belongs to, and the crumb in it. */
interface TraceContext {
  readonly recording: Recording
  readonly crumb: number | undefined
}

const contexts = new AsyncLocalStorage<TraceContext | undefined>()
let tracing = 0

export async function recordTrace<T>(
  schema: string,
  work: () => Promise<T>,
  { maxCrumbs = 1000 }: TraceOptions = {},
): Promise<Trace<T>> {
  if (!Number.isSafeInteger(maxCrumbs) || maxCrumbs < 1)
    throw new InvalidOption({
      option: 'maxCrumbs',
      reason: `The option "maxCrumbs" is ${describe(maxCrumbs)}. It must be a whole number from 1.`,
    })
  const lists = { crumbs: [], correlations: new Set<string>(), writers: new Map<string, number>() }
  const recording: Recording = { schema, maxCrumbs, isWhole: true, ...lists }
  const onSpan = (message: unknown): void => onSpanBegin(recording, message as Span)
  const onDocuments = (message: unknown): void => onDocumentsTouched(recording, message as DocumentsTouched)
  subscribe(channels.span, onSpan)
  subscribe(channels.documents, onDocuments)
  tracing++
  try {
    const value = await contexts.run({ recording, crumb: undefined }, work)
    const crumbs: readonly Crumb[] = [...recording.crumbs]
    return { value, crumbs, isWhole: recording.isWhole, mermaid: () => drawCrumbs(crumbs, recording.isWhole) }
  } finally {
    unsubscribe(channels.span, onSpan)
    unsubscribe(channels.documents, onDocuments)
    if (--tracing === 0) contexts.disable()
  }
}

function onSpanBegin(recording: Recording, span: Span): void {
  if (span.schema !== recording.schema) return
  const context = contexts.getStore()
  if (span.causes.length === 0) {
    if (context?.recording === recording) follow(recording, span, context.crumb, span.fields)
    // A schedule is run by a loop, which has no context, and no event causes it: it is recorded while the trace runs.
    else if (context === undefined && span.name === 'workflows.schedule')
      follow(recording, span, undefined, span.fields)
    return
  }
  const ours = span.causes.filter(cause => recording.correlations.has(cause.correlationId))
  const isTraced = ours.length > 0 && span.fields.kind !== 'dispatcher'
  // The work of a runner for other events is not part of the trace, even if the runner was started inside the request.
  if (!isTraced && context?.recording === recording) span.enter(inside => contexts.run(undefined, inside))
  if (isTraced)
    follow(recording, span, recording.writers.get(ours[0]!.id), { ...span.fields, types: ours.map(({ type }) => type) })
}

function follow(recording: Recording, span: Span, from: number | undefined, fields: Record<string, unknown>): void {
  const { kind, name, what } = crumbOf(span.name, fields)
  const at = add(recording, { kind, name, what, from, events: [], durationMs: undefined, error: undefined })
  if (at === undefined) return
  span.enter(inside => contexts.run({ recording, crumb: at }, inside))
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

function crumbOf(name: Span['name'], fields: Record<string, unknown>): Pick<Crumb, 'kind' | 'name' | 'what'> {
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

function onDocumentsTouched(recording: Recording, touched: DocumentsTouched): void {
  const context = contexts.getStore()
  if (context?.recording !== recording || touched.schema !== recording.schema) return
  const { collection, statement, documents } = touched
  const verb = statement.slice(statement.indexOf('.') + 1).replaceAll('_', ' ')
  const what = `${verb}, ${documents} ${documents === 1 ? 'document' : 'documents'}`
  add(recording, {
    ...{ kind: 'document', name: collection, what, from: context.crumb },
    ...{ events: [], durationMs: undefined, error: undefined },
  })
}

/** Returns the index of the crumb; undefined if there is no room for it. */
function add(recording: Recording, crumb: Growing): number | undefined {
  if (recording.crumbs.length < recording.maxCrumbs) return recording.crumbs.push(crumb) - 1
  recording.isWhole = false
  return undefined
}
