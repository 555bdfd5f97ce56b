/**
 * The judge of appends, in linear time: a log in which each event names its call needs no search.
 *
 * It shows that
 * - the versions of a stream are contiguous, and each event is stored once;
 * - each answer is true: the events are at the versions and positions it says, an exact expectation got exactly the next
 *   version, a refusal stored nothing, an unknown outcome is all or nothing, a key is used once;
 * - there is one order of all calls that explains every answer and agrees with time: a call that had ended before another
 *   began comes before it (by position), and each version that a read or a conflict reports was true during the call;
 * - each reader got every event up to its cursor, once and in order.
 *
 * A problem is a sentence, with the calls that contradict each other: one or two.
 */
import { isExpected } from '../events/append/prepare.ts'
import {
  type AppendCall,
  type AppendHistory,
  type Delivery,
  describeCall,
  type LoggedEvent,
  ms,
  type StreamRead,
} from './append-history.ts'

/** More problems say nothing new. */
const maxProblems = 20

export function checkAppends(history: AppendHistory): string[] {
  const { calls, log, reads = [], deliveries = [] } = history
  const start = Math.min(...calls.slice(0, 1_000).map(({ began }) => began))
  const problems: string[] = []
  const report = (what: string, ...about: (AppendCall | StreamRead | undefined)[]): void => {
    const lines = about.flatMap(each => (each === undefined ? [] : [`  ${describe(each, start)}`]))
    if (problems.length < maxProblems) problems.push([what, ...lines].join('\n'))
  }
  const byName = new Map(calls.map(call => [call.name, call]))
  if (byName.size < calls.length) report('two calls have one name')
  const { streams, byId } = checkLog(history, byName, report)
  checkAnswers(history, byName, byId, report)
  checkPositions(log, byName, report)
  checkVersions(streams, byName, [...seenByConflicts(calls), ...seenByReads(reads, streams, report)], report)
  for (const delivery of deliveries) for (const problem of deliveryProblems(delivery, log)) report(problem)
  return problems
}

type Report = (what: string, ...about: (AppendCall | StreamRead | undefined)[]) => void

function describe(each: AppendCall | StreamRead, start: number): string {
  if ('parts' in each) return describeCall(each, start)
  const during = `${ms(each.began - start)}–${ms(each.ended - start)} ms`
  return `${each.name} (${during}) reads ${each.stream}: ${each.eventIds.length} events`
}

/** Returns the events of each stream, by version, and each event by its id. */
function checkLog(
  { log, hasOthers = false }: AppendHistory,
  byName: ReadonlyMap<string, AppendCall>,
  report: Report,
): { streams: Map<string, LoggedEvent[]>; byId: Map<string, LoggedEvent> } {
  const streams = new Map<string, LoggedEvent[]>()
  const byId = new Map<string, LoggedEvent>()
  let last = Number.NEGATIVE_INFINITY
  for (const event of log) {
    const { id, stream, version, position, call } = event
    const own = streams.get(stream)
    if (own === undefined) streams.set(stream, [event])
    else own.push(event)
    const next = own === undefined ? 1 : own.length
    if (version !== next) report(`${stream} has version ${version} where ${next} should be`, byName.get(call ?? ''))
    if (position <= last) report(`position ${position} comes after ${last}`)
    if (byId.has(id)) report(`event ${id} is stored twice`, byName.get(call ?? ''))
    if (!hasOthers && !byName.has(call ?? '')) report(`version ${version} of ${stream} was appended by no call`)
    byId.set(id, event)
    last = position
  }
  return { streams, byId }
}

/** Each answer, compared with the events that its call has in the log. */
function checkAnswers(
  { calls, log }: AppendHistory,
  byName: ReadonlyMap<string, AppendCall>,
  byId: ReadonlyMap<string, LoggedEvent>,
  report: Report,
): void {
  const byCall = groupBy(log, ({ call }) => call)
  const byKey = new Map<string, AppendCall>()
  for (const call of calls) {
    const { answer, key } = call
    const own = byCall.get(call.name) ?? []
    if (own.length > 0) {
      const other = key === undefined ? undefined : byKey.get(key)
      if (other !== undefined) report(`key ${key} has stored events twice`, other, call)
      if (key !== undefined) byKey.set(key, call)
      checkStored(call, own, report)
    }
    if (answer?.kind === 'stored') checkResults(call, own, byId, byName, report)
    else if (answer?.kind === 'conflict' || answer?.kind === 'refused') {
      if (own.length > 0) report('an append was refused, and is stored', call)
      const part = answer.kind === 'conflict' && call.parts.find(({ stream }) => stream === answer.stream)
      if (part && isExpected(answer.actual, part.expected)) report('a conflict names the expected version', call)
    }
  }
}

/** All events of a call that is in the log, whatever its answer: whole, in one piece, at the expected version. */
function checkStored(call: AppendCall, own: readonly LoggedEvent[], report: Report): void {
  const wanted = call.parts.reduce((sum, { events }) => sum + events, 0)
  if (own.length !== wanted) {
    report(`an append is torn: ${own.length} of ${wanted} events are stored`, call)
    return
  }
  for (const { stream, expected, events } of call.parts) {
    const versions = own.filter(event => event.stream === stream).map(({ version }) => version)
    const [first = 0] = versions
    if (versions.length !== events) report(`an append is torn: ${stream} has ${versions.length} of its events`, call)
    else if (versions.some((version, at) => version !== first + at))
      report(`an append is torn: its events are versions ${versions.join(', ')} of ${stream}`, call)
    else if (events > 0 && !isExpected(first - 1, expected))
      report(`an append expected ${stream} at ${expected}, and got version ${first}`, call)
  }
}

function checkResults(
  call: AppendCall,
  own: readonly LoggedEvent[],
  byId: ReadonlyMap<string, LoggedEvent>,
  byName: ReadonlyMap<string, AppendCall>,
  report: Report,
): void {
  const { answer, parts } = call
  if (answer?.kind !== 'stored') return
  const stored = own.map(({ id }) => id)
  for (const [at, { stream, version, position, eventIds, repeated }] of answer.results.entries()) {
    if (eventIds.length === 0) continue
    const events = eventIds.map(id => byId.get(id))
    const last = events.at(-1)
    const missing = events.filter(event => event === undefined).length
    if (missing > 0) report(`an append was acknowledged, and ${missing} of its events are lost`, call)
    else if (last!.stream !== stream || parts[at]?.stream !== stream) report('an answer names another stream', call)
    else if (events.some((event, number) => event!.version !== version - eventIds.length + 1 + number))
      report(`an answer says version ${version} of ${stream}, and the log says ${last!.version}`, call)
    else if (last!.position !== position)
      report(`an answer says position ${position}, and the log says ${last!.position}`, call)
    else if (repeated) {
      const first = byName.get(last!.call ?? '')
      if (own.length > 0) report('an append was answered as a repetition, and is stored itself', call)
      if (first !== undefined && first.began > (call.ended ?? Number.POSITIVE_INFINITY))
        report('an append was answered with the outcome of a later one', first, call)
      if (first !== undefined && first.key !== call.key)
        report('an append was answered with the outcome of another key', first, call)
    } else if (eventIds.some(id => !stored.includes(id))) report('an answer names events of another call', call)
  }
}

/** Positions are drawn during their calls, so they agree with time. */
function checkPositions(log: readonly LoggedEvent[], byName: ReadonlyMap<string, AppendCall>, report: Report): void {
  let latest: AppendCall | undefined
  for (const event of log) {
    const call = byName.get(event.call ?? '')
    if (call === undefined || call === latest) continue
    if (latest !== undefined && endOf(call) < latest.began)
      report('the earlier of two appends has the higher position', call, latest)
    if (latest === undefined || call.began > latest.began) latest = call
  }
}

/** An answer of a later call cannot come from it: its outcome may still change after the call. */
function endOf({ ended, answer }: AppendCall): number {
  if (ended === undefined || answer === undefined || answer.kind === 'unknown') return Number.POSITIVE_INFINITY
  return ended
}

/** A call that has seen a version of a stream. */
interface Seen {
  readonly stream: string
  readonly version: number
  readonly began: number
  readonly ended: number
  readonly by: AppendCall | StreamRead
}

function seenByConflicts(calls: readonly AppendCall[]): Seen[] {
  return calls.flatMap(call => {
    const { answer, began, ended = Number.POSITIVE_INFINITY } = call
    if (answer?.kind !== 'conflict') return []
    return [{ stream: answer.stream, version: answer.actual, began, ended, by: call }]
  })
}

function seenByReads(
  reads: readonly StreamRead[],
  streams: ReadonlyMap<string, readonly LoggedEvent[]>,
  report: Report,
): Seen[] {
  return reads.map(read => {
    const { stream, eventIds, began, ended } = read
    const other = eventIds.findIndex((id, at) => streams.get(stream)?.[at]?.id !== id)
    if (other >= 0) report(`a read has an event as version ${other + 1} of ${stream} that the log does not have`, read)
    return { stream, version: eventIds.length, began, ended, by: read }
  })
}

/**
 * The order of a stream: append, those that saw its version, the next append, … A call is contradicted by an earlier one
 * in this order that began after it had ended; of all those the one that began last is enough.
 */
function checkVersions(
  streams: ReadonlyMap<string, readonly LoggedEvent[]>,
  byName: ReadonlyMap<string, AppendCall>,
  seen: readonly Seen[],
  report: Report,
): void {
  const byStream = groupBy(seen, ({ stream }) => stream)
  for (const [stream, all] of byStream) {
    const events = streams.get(stream) ?? []
    const byVersion = groupBy(all, ({ version }) => version)
    let latest: { began: number; by: AppendCall | StreamRead } | undefined
    for (let version = 0; version <= events.length; version++) {
      const [event, next] = [events[version - 1], events[version]]
      const call = byName.get(event?.call ?? '')
      if (call !== undefined) {
        if (latest !== undefined && endOf(call) < latest.began)
          report(`a call did not see version ${version} of ${stream}, which was there before`, call, latest.by)
        if (latest === undefined || call.began > latest.began) latest = { began: call.began, by: call }
      }
      const here = byVersion.get(version) ?? []
      byVersion.delete(version)
      for (const { ended, by } of here) {
        if (latest !== undefined && ended < latest.began)
          report(`version ${version} of ${stream} was seen before it was there`, by, latest.by)
        if (call !== undefined && next?.call === call.name)
          report(`a part of an append was seen: version ${version} of ${stream}`, by, call)
      }
      for (const { began, by } of here) if (latest === undefined || began > latest.began) latest = { began, by }
    }
    for (const [version, late] of byVersion)
      report(`version ${version} of ${stream} was seen, and the log ends at ${events.length}`, late[0]?.by)
  }
}

/** Every event up to the cursor, once and in order. */
export function deliveryProblems(
  { name, from, cursor, positions, types }: Delivery,
  log: readonly Pick<LoggedEvent, 'position' | 'type'>[],
): string[] {
  const [missed, strange, again, disordered] = [newFound(), newFound(), newFound(), newFound()]
  for (const [at, position] of positions.entries()) if (position < (positions[at - 1] ?? 0)) note(disordered, position)
  // Walked in step with the log, for sets of ten million positions take gigabytes.
  const given = disordered.count === 0 ? positions : [...positions].sort((a, b) => a - b)
  let at = 0
  const skipTo = (next: number): void => {
    for (; at < given.length && given[at]! < next; at++) note(given[at] === given[at - 1] ? again : strange, given[at]!)
  }
  for (const { position, type } of log) {
    if (position <= from || position > cursor || !(types?.includes(type ?? '') ?? true)) continue
    skipTo(position)
    if (given[at] === position) at++
    else note(missed, position)
  }
  skipTo(Number.POSITIVE_INFINITY)
  const problems: [string, Found][] = [
    ['never got', missed],
    ['got something that is not in the log, or not for it, at', strange],
    ['got out of order', disordered],
    ['got again', again],
  ]
  return problems.flatMap(([what, { first, count }]) =>
    count === 0 ? [] : [`${name} ${what} position ${first}${count > 1 ? `, and ${count - 1} more` : ''}`],
  )
}

interface Found {
  first: number
  count: number
}

function newFound(): Found {
  return { first: 0, count: 0 }
}

function note(found: Found, position: number): void {
  if (found.count++ === 0) found.first = position
}

function groupBy<T, K>(items: readonly T[], keyOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>()
  for (const item of items) {
    const key = keyOf(item)
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [item])
    else group.push(item)
  }
  return groups
}
