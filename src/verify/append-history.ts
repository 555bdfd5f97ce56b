/**
 * A history of appends: what callers asked for, when, and what they got; and the log as it is in the end.
 *
 *     call ──began──────────────ended──► answer          each event in the log names its call (`causationId`)
 *
 * Times are nanoseconds of the machine's monotonic clock, which all its processes share: an order between processes is
 * real. A call begins before anything is sent, and ends after its answer has come, so that two calls are never said to
 * have an order that they did not have.
 */
import type { Expected } from '../events/append/prepare.ts'
import type { AppendResult } from '../events/append/send.ts'

export interface AppendCall {
  /** Unique in the history. */
  readonly name: string
  readonly parts: readonly CallPart[]
  readonly key?: string | undefined
  readonly began: number
  /** Undefined if it never returned: its process was killed. */
  ended?: number | undefined
  answer?: Answer | undefined
}

export interface CallPart {
  readonly stream: string
  readonly expected: Expected
  readonly events: number
}

export type Answer =
  | { readonly kind: 'stored'; readonly results: readonly AppendResult[] }
  /** Not stored, because this stream had another version than the expected one. */
  | { readonly kind: 'conflict'; readonly stream: string; readonly actual: number }
  /** Not stored, for another reason. */
  | { readonly kind: 'refused'; readonly code: string }
  /** Stored, or not, or later. */
  | { readonly kind: 'unknown' }

/** A read of a whole stream: the ids of its events, by version. */
export interface StreamRead {
  readonly name: string
  readonly stream: string
  readonly began: number
  readonly ended: number
  readonly eventIds: readonly string[]
}

/** The events that a reader of the log was given. */
export interface Delivery {
  readonly name: string
  /** It began after this position, and has passed this one. */
  readonly from: number
  readonly cursor: number
  /** In the order in which it got them. */
  readonly positions: readonly number[]
  /** Undefined: all events. */
  readonly types?: readonly string[] | undefined
}

export interface LoggedEvent {
  readonly id: string
  readonly stream: string
  readonly version: number
  readonly position: number
  readonly type?: string | undefined
  /** The name of the call that appended it. */
  readonly call: string | undefined
}

export interface AppendHistory {
  readonly calls: readonly AppendCall[]
  readonly reads?: readonly StreamRead[] | undefined
  readonly deliveries?: readonly Delivery[] | undefined
  /** All events, by position. */
  readonly log: readonly LoggedEvent[]
  /** Whether the log may have events of no recorded call. Default false. */
  readonly hasOthers?: boolean | undefined
}

export function instant(): number {
  return Number(process.hrtime.bigint())
}

/** A call as a line of an explanation; times are milliseconds since `start`. */
export function describeCall({ name, parts, key, began, ended, answer }: AppendCall, start: number): string {
  const asked = parts.map(part => `${part.events} to ${part.stream} at ${part.expected}`).join(', ')
  const during = `${ms(began - start)}–${ended === undefined ? '…' : ms(ended - start)} ms`
  return `${name} (${during}) appends ${asked}${key === undefined ? '' : `, key ${key}`}: ${describeAnswer(answer)}`
}

function describeAnswer(answer: Answer | undefined): string {
  if (answer === undefined) return 'no answer'
  if (answer.kind === 'conflict') return `conflict, ${answer.stream} has version ${answer.actual}`
  if (answer.kind === 'refused') return `refused, ${answer.code}`
  if (answer.kind === 'unknown') return 'unknown'
  const results = answer.results.map(
    ({ version, position, repeated }) => `version ${version}, position ${position}${repeated ? ', repeated' : ''}`,
  )
  return `stored, ${results.join(' and ')}`
}

export function ms(nanoseconds: number): string {
  return (nanoseconds / 1e6).toFixed(2)
}
