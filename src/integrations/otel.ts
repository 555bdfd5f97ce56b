/**
 * OpenTelemetry, published as `rillflow/otel`: every span of the store becomes a span of yours.
 *
 *     import { connectOpenTelemetry } from 'rillflow/otel'
 *     const bridge = connectOpenTelemetry()          after the SDK was started
 *
 *     events.append, workflows.schedule ─ traceparent in the headers ─► consumers.batch, subscriptions.deliver, workflows.run
 *                                                                                                  └─► workflows.emit ─ … ─►
 *
 * An append is a child of the active span; the events it writes carry its context in their headers, as W3C's
 * `traceparent` and `tracestate`. A batch or a handler whose events all come from one context is a child of it; a batch
 * of events from several begins a trace of its own, with a link to each. Your code runs with the span active.
 *
 * `@opentelemetry/api` is an optional peer, and only this entry loads it. Nothing but that API is needed of the SDK: no
 * propagator has to be registered, and without a provider nothing is written into headers.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import {
  type Attributes,
  type Context,
  context,
  createTraceState,
  isSpanContextValid,
  type Span as OtelSpan,
  ROOT_CONTEXT,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  type TracerProvider,
  trace,
} from '@opentelemetry/api'
import type { Span, SpanCause, SpanName } from '../telemetry/span.ts'
import { channels } from '../telemetry/telemetry.ts'

/** Which spans go where. */
export interface OpenTelemetryOptions {
  /** Default: the one that is registered globally. */
  tracerProvider?: TracerProvider | undefined
  /** Only stores in this schema. Default: all of this process. */
  schema?: string | undefined
}

/** The connection of the stores of this process with OpenTelemetry. */
export interface OpenTelemetryBridge extends Disposable {
  /** Disconnects the bridge. Spans that have begun are still ended. */
  stop(): void
}

/**
 * Every span of the stores in this process becomes a span of OpenTelemetry, until `stop()`.
 *
 * @example
 * ```ts
 * const bridge = connectOpenTelemetry()
 * bridge.stop()
 * ```
 */
export function connectOpenTelemetry(options: OpenTelemetryOptions = {}): OpenTelemetryBridge {
  const provider = options.tracerProvider ?? trace.getTracerProvider()
  const tracer = provider.getTracer('rillflow')
  const onSpan = (message: unknown): void => {
    const span = message as Span
    if (options.schema === undefined || options.schema === span.schema) follow(tracer, span)
  }
  subscribe(channels.span, onSpan)
  const stop = (): void => void unsubscribe(channels.span, onSpan)
  return { stop, [Symbol.dispose]: stop }
}

const kinds: Readonly<Record<SpanName, SpanKind>> = {
  'events.append': SpanKind.PRODUCER,
  'sessions.save': SpanKind.PRODUCER,
  'projections.inline': SpanKind.INTERNAL,
  'consumers.batch': SpanKind.CONSUMER,
  'consumers.replay': SpanKind.CONSUMER,
  'subscriptions.deliver': SpanKind.CONSUMER,
  'workflows.run': SpanKind.CONSUMER,
  'workflows.emit': SpanKind.PRODUCER,
  'workflows.schedule': SpanKind.PRODUCER,
}

/** The most links of one span. */
const maxLinks = 128

function follow(tracer: Tracer, span: Span): void {
  const sources = sourcesOf(span.causes)
  const [only] = sources
  const parent: Context =
    sources.length === 0
      ? activeFor(span)
      : sources.length === 1
        ? trace.setSpanContext(ROOT_CONTEXT, only!)
        : ROOT_CONTEXT
  const links = sources.length > 1 ? sources.slice(0, maxLinks).map(each => ({ context: each })) : []
  const attributes = attributesOf(span)
  const own = tracer.startSpan(nameOf(span), { kind: kinds[span.name], attributes, links }, parent)
  Object.assign(span.headers, headersOf(own.spanContext()))
  span.enter(inside => context.with(trace.setSpan(parent, own), inside))
  span.onWrite(events => {
    own.setAttributes({ ...correlationOf(events), 'rillflow.events': events.length })
  })
  span.onEnd(({ error }) => end(own, span, error))
}

/** The cause of a schedule's run is the clock, not the code that once started the worker. */
function activeFor({ name }: Span): Context {
  return name === 'workflows.schedule' ? ROOT_CONTEXT : context.active()
}

function end(own: OtelSpan, span: Span, error: unknown): void {
  own.setAttributes(attributesOf(span))
  if (error !== undefined) {
    const { name = 'Error', message = String(error) } = (error ?? {}) as { name?: string; message?: string }
    own.recordException({ name, message })
    own.setStatus({ code: SpanStatusCode.ERROR, message })
  }
  own.end()
}

/** Few different ones, as names of spans should be: neither streams nor ids. */
function nameOf({ name, fields }: Span): string {
  const about = fields.consumer ?? fields.subscription ?? fields.handler ?? fields.schedule
  return typeof about === 'string' ? `${name} ${about}` : name
}

function attributesOf({ schema, fields, causes }: Span): Attributes {
  const attributes: Attributes = { 'rillflow.schema': schema, ...correlationOf(causes) }
  if (causes.length > 0) attributes['rillflow.events'] = causes.length
  for (const [field, value] of Object.entries(fields)) {
    const key = `rillflow.${field.replaceAll(/[A-Z]/g, letter => `_${letter.toLowerCase()}`)}`
    if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') attributes[key] = value
    else if (Array.isArray(value) && value.every(each => typeof each === 'string')) attributes[key] = value.slice(0, 10)
  }
  return attributes
}

/** The correlation id that these events share, if they do. */
function correlationOf(events: readonly Pick<SpanCause, 'correlationId'>[]): Attributes {
  const [id, other] = new Set(events.map(({ correlationId }) => correlationId))
  return id === undefined || other !== undefined ? {} : { 'rillflow.correlation_id': id }
}

/** The different contexts that events were written in. */
function sourcesOf(causes: readonly SpanCause[]): SpanContext[] {
  const sources = new Map<string, SpanContext>()
  for (const { headers } of causes) {
    const found = contextFrom(headers)
    if (found !== undefined) sources.set(`${found.traceId} ${found.spanId}`, found)
  }
  return [...sources.values()]
}

/** W3C Trace Context, version 00. Headers come from anywhere: a value of the wrong form counts as absent. */
function contextFrom({ traceparent, tracestate }: Readonly<Record<string, unknown>>): SpanContext | undefined {
  if (typeof traceparent !== 'string') return undefined
  const [, traceId, spanId, flags] = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(traceparent) ?? []
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined
  const found: SpanContext = { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true }
  if (!isSpanContextValid(found)) return undefined
  return typeof tracestate === 'string' ? { ...found, traceState: createTraceState(tracestate) } : found
}

function headersOf(own: SpanContext): Record<string, string> {
  if (!isSpanContextValid(own)) return {}
  const flags = (own.traceFlags & 0xff).toString(16).padStart(2, '0')
  const traceparent = `00-${own.traceId}-${own.spanId}-${flags}`
  const tracestate = own.traceState?.serialize()
  return tracestate === undefined || tracestate === '' ? { traceparent } : { traceparent, tracestate }
}
