/**
 * Spans: work that takes time, from its beginning to its end, with the events that caused it.
 *
 *     events.append ─► [event, with the trace context in its headers] ─► consumers.batch, workflows.run ─► workflows.emit ─► …
 *     workflows.schedule ─► [event]                                       consumers.replay, subscriptions.deliver
 *
 * A span is published on one channel when it begins. A subscriber may run the span inside a function of its own
 * (`enter`), add headers to the events that the span writes (`headers`), and be called at its end (`onEnd`). Without a
 * subscriber a span costs one look at a property, 21 ns on a busy machine (load 19, best of seven runs of 5 million),
 * and allocates nothing.
 */

import { type Channel, channel } from 'node:diagnostics_channel'
import { elapsedMs } from '../core/host.ts'

export type SpanName =
  | 'events.append'
  | 'sessions.save'
  | 'projections.inline'
  | 'consumers.batch'
  | 'consumers.replay'
  | 'subscriptions.deliver'
  | 'workflows.run'
  | 'workflows.emit'
  | 'workflows.schedule'

export interface SpanStart {
  readonly name: SpanName
  readonly schema: string
  /** The events that caused it. */
  readonly causes?: readonly SpanCause[] | undefined
  /** Further facts about it. More may be added at its end. */
  readonly fields: Record<string, unknown>
}

/** An event that caused a span. */
export interface SpanCause {
  readonly id: string
  readonly type: string
  readonly correlationId: string
  readonly headers: Readonly<Record<string, unknown>>
}

/** An event that is written within a span. */
export interface SpanEvent {
  readonly id: string
  readonly type: string
  readonly stream: string
  readonly correlationId: string
}

/** The message of the channel `span`. */
export interface Span extends SpanStart {
  readonly causes: readonly SpanCause[]
  /** Headers for the events that are written within the span. */
  readonly headers: Record<string, string>
  /** Reports the events that are written within it, before they are sent, so that no reader can have seen them. */
  wrote(events: readonly SpanEvent[]): void
  onWrite(listener: (events: readonly SpanEvent[]) => void): void
  /** Runs the work inside `around`, which must call the function it is given, once. */
  enter(around: <T>(work: () => T) => T): void
  /** Calls the listener at the end, with an error if the span has failed. */
  onEnd(listener: (end: SpanEnd) => void): void
  /** Marks the span as failed although nothing is thrown. */
  fail(error: unknown): void
}

export interface SpanEnd {
  readonly durationMs: number
  readonly error?: unknown
}

export const spanChannel: Channel = channel('rillflow:telemetry.span')

/** Runs `work` as a span. To be called only if there is a subscriber. */
export async function runSpan<T>(start: SpanStart, work: (span: Span) => Promise<T>): Promise<T> {
  const arounds: (<R>(inside: () => R) => R)[] = []
  const endListeners: ((end: SpanEnd) => void)[] = []
  const writeListeners: ((events: readonly SpanEvent[]) => void)[] = []
  let failure: { readonly error: unknown } | undefined
  const span: Span = {
    ...start,
    causes: start.causes ?? [],
    headers: {},
    wrote: events => {
      for (const listener of writeListeners) listener(events)
    },
    onWrite: listener => void writeListeners.push(listener),
    enter: around => void arounds.push(around),
    onEnd: listener => void endListeners.push(listener),
    fail(error) {
      failure = { error }
    },
  }
  const started = elapsedMs()
  spanChannel.publish(span)
  let run = (): Promise<T> => work(span)
  for (const around of arounds) {
    const inside = run
    run = () => around(inside)
  }
  try {
    return await run()
  } catch (error) {
    failure = { error }
    throw error
  } finally {
    for (const listener of endListeners) listener({ durationMs: elapsedMs() - started, ...failure })
  }
}

/**

 * The trace context of the event that caused something, for the headers of the events that are emitted because of it.
 * It is passed on also if this process has no subscriber: the next process may have one.
 */
export function contextOf(headers: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { traceparent, tracestate } = headers
  if (typeof traceparent !== 'string') return {}
  return typeof tracestate === 'string' ? { traceparent, tracestate } : { traceparent }
}

/** Options of a write with the headers that subscribers of its span have added; the caller's own headers win. */
export function carrying<O extends { headers?: Readonly<Record<string, unknown>> | undefined }>(
  options: O,
  span: Span | undefined,
): O {
  if (span === undefined || Object.keys(span.headers).length === 0) return options
  return { ...options, headers: { ...span.headers, ...options.headers } }
}
