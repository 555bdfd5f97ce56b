/**
 * Checks the events of an append and turns them into the form that the database takes. Every fault of a single event is
 * found here, before anything is sent, and named by its path.
 */
import { createHash } from 'node:crypto'
import { type Awaitable, isPromise } from '../../core/core.ts'
import { InvalidEvent, InvalidOption } from '../../core/errors.ts'
import { canonicalUuid } from '../../core/id.ts'
import { canonicalJson, encodeJson } from '../../core/json.ts'
import { checkName, nameFault, nearestName } from '../../core/name.ts'
import { describe } from '../../core/options.ts'
import { checkSchema, type SchemaIssue } from '../../core/schema-check.ts'
import type { NewEventOf } from '../definition.ts'
import type { Log } from '../log.ts'

/**
 * The version a stream must have: any, none yet (0), at least one event, or exactly this one.
 *
 * @example
 * ```ts
 * const expected: Expected = 'empty'
 * await store.events.append('order-12', placed, { expected })
 * ```
 */
export type Expected = 'any' | 'empty' | 'exists' | number

/** Options of a whole append; an event may override them. */
export interface AppendDefaults {
  headers?: Readonly<Record<string, unknown>> | undefined
  correlationId?: string | undefined
  causationId?: string | undefined
  userId?: string | undefined
}

export interface StreamEvents {
  readonly stream: string
  readonly events: readonly NewEventOf<string, unknown>[]
  readonly expected?: Expected | undefined
}

/** The events of one stream within an append, checked. */
export interface Part {
  readonly stream: string
  readonly expected: Expected
  readonly events: readonly CheckedEvent[]
}

/** The type of the last event of a stream that was ended. Only `store.streams.tombstone` appends one. */
export const tombstoneType = '$tombstone'

/** Checks all of it; a promise only where a schema is asynchronous. `endsStream`: its event is a tombstone. */
export function prepareParts(
  log: Log,
  parts: readonly StreamEvents[],
  defaults: AppendDefaults,
  endsStream = false,
): Awaitable<readonly Part[]> {
  const checks: Promise<void>[] = []
  const prepared = parts.map(({ stream, events, expected = 'any' }): Part => {
    checkName('Stream', stream)
    checkExpected(expected)
    if (!endsStream) refuseTombstones(events)
    const check = endsStream ? checkEvent : checkNew
    return { stream, expected, events: events.map(event => check(log, stream, event, defaults, checks)) }
  })
  refuseRepeated(prepared)
  return checks.length === 0 ? prepared : Promise.all(checks).then(() => prepared)
}

function refuseTombstones(events: StreamEvents['events']): void {
  if (!events.some(event => event?.type === tombstoneType)) return
  const reason = 'is reserved for the end of a stream: call store.streams.tombstone'
  throw new InvalidEvent({ type: tombstoneType, path: 'type', reason })
}

/** Equal for two appends with the same content, whatever their ids, headers and order of keys. */
export function digestOf(parts: readonly StreamEvents[]): string {
  const said = parts.map(({ stream, events }) => [stream, events.map(({ type, data }) => [type, data])])
  return createHash('sha256').update(canonicalJson(said)).digest('hex')
}

/** The expected version, as the functions of the database take it: `exact` goes with a version. */
export function expectedWord(expected: Expected): 'any' | 'empty' | 'exists' | 'exact' {
  return typeof expected === 'number' ? 'exact' : expected
}

/** The one version that is expected, if there is one. */
export function expectedVersion(expected: Expected): number | null {
  if (expected === 'empty') return 0
  return typeof expected === 'number' ? expected : null
}

export function isExpected(version: number, expected: Expected): boolean {
  if (expected === 'any') return true
  return expected === 'exists' ? version > 0 : version === expectedVersion(expected)
}

/** One event, checked; the texts are JSON. */
export interface CheckedEvent {
  readonly id: string
  readonly type: string
  readonly schemaVersion: number
  readonly data: string
  readonly headers: string | undefined
  readonly correlationId: string
  readonly causationId: string | undefined
  readonly userId: string | undefined
  readonly bytes: number
}

/** Of a store with schemas, a type that is not among them is a mistake, unless upcasters lead from it to one. */
function checkNew(
  log: Log,
  stream: string,
  event: NewEventOf<string, unknown>,
  defaults: AppendDefaults,
  checks: Promise<void>[],
): CheckedEvent {
  const type: unknown = event?.type
  if (log.schemas.size > 0 && typeof type === 'string' && !log.schemas.has(type)) {
    const schemaVersion = event.schemaVersion ?? log.upcasters.currentVersion(type)
    if (!log.schemas.has(log.upcasters.path(type, schemaVersion).at(-1)!.type)) {
      const nearest = nearestName(type, log.schemas.keys())
      const known = [...log.schemas.keys()].slice(0, 10).join(', ')
      const hint = nearest === undefined ? `They are ${known}.` : `Did you mean "${nearest}"?`
      throw new InvalidEvent({ type, path: 'type', reason: `is not among the events of the store. ${hint}` })
    }
  }
  return checkEvent(log, stream, event, defaults, checks)
}

/** Checks of asynchronous schemas are added to `checks`; the event counts as checked when they have succeeded. */
export function checkEvent(
  log: Log,
  stream: string,
  event: NewEventOf<string, unknown>,
  defaults: AppendDefaults,
  checks: Promise<void>[],
): CheckedEvent {
  if (typeof event !== 'object' || event === null)
    throw new InvalidEvent({ type: '', path: 'event', reason: `is ${String(event)}, not an object` })
  const { type } = event
  const fault = typeof type === 'string' ? nameFault(type) : 'is not a string'
  if (fault !== undefined) throw new InvalidEvent({ type: String(type ?? ''), path: 'type', reason: fault })
  const data = encodeJson(event.data, { what: type, root: 'data', maxBytes: log.maxEventBytes })
  const schemaVersion = event.schemaVersion ?? log.upcasters.currentVersion(type)
  if (!Number.isInteger(schemaVersion) || schemaVersion < 1 || schemaVersion >= 2 ** 31)
    throw new InvalidEvent({ type, path: 'schemaVersion', reason: `is ${schemaVersion}, not a whole number from 1` })
  const id = eventId(log, event)
  if (log.schemas.size > 0) checkAgainstSchema(log, stream, { ...event, id, schemaVersion }, data.text, checks)
  const headers = headersText(log, type, defaults.headers, event.headers)
  const correlationId = event.correlationId ?? defaults.correlationId ?? id
  const causationId = event.causationId ?? defaults.causationId
  const userId = event.userId ?? defaults.userId
  if (correlationId !== id) checkName('Correlation id', correlationId)
  if (causationId !== undefined) checkName('Causation id', causationId)
  if (userId !== undefined) checkName('User id', userId)
  const bytes = data.bytes + (headers?.length ?? 0) + 200
  return { id, type, schemaVersion, data: data.text, headers, correlationId, causationId, userId, bytes }
}

function eventId(log: Log, event: NewEventOf<string, unknown>): string {
  if (event.id === undefined) return log.ids.next()
  const id = typeof event.id === 'string' ? canonicalUuid(event.id) : undefined
  if (id === undefined)
    throw new InvalidEvent({ type: event.type, path: 'id', reason: `is ${JSON.stringify(event.id)}, not a UUID` })
  return id
}

function headersText(
  log: Log,
  type: string,
  shared: Readonly<Record<string, unknown>> | undefined,
  own: Readonly<Record<string, unknown>> | undefined,
): string | undefined {
  const headers = shared === undefined ? own : own === undefined ? shared : { ...shared, ...own }
  if (headers === undefined) return undefined
  if (typeof headers !== 'object' || headers === null || Array.isArray(headers))
    throw new InvalidEvent({ type, path: 'headers', reason: 'is not an object' })
  const { text } = encodeJson(headers, { what: type, root: 'headers', maxBytes: log.maxEventBytes })
  return text === '{}' ? undefined : text
}

/**
 * The stored form is checked: the data as it comes back from JSON. An event of an old version is checked as its readers
 * will see it, in the shape that the upcasters give it; it is stored as it was given.
 */
function checkAgainstSchema(
  log: Log,
  stream: string,
  event: NewEventOf<string, unknown> & { readonly id: string; readonly schemaVersion: number },
  text: string,
  checks: Promise<void>[],
): void {
  const { type, schemaVersion } = event
  const data: unknown = JSON.parse(text)
  if (log.upcasters.path(type, schemaVersion).length === 1) {
    refuseFaults(type, checkData(log, type, data), checks)
    return
  }
  const { headers = {}, correlationId = event.id } = event
  const seen = { ...event, data, headers, correlationId, stream, version: 0, position: 0, createdAt: log.clock.now() }
  const upcast = log.upcasters.apply(seen)
  const issues = isPromise(upcast)
    ? upcast.then(late => checkData(log, late.type, late.data))
    : checkData(log, upcast.type, upcast.data)
  refuseFaults(type, issues, checks)
}

function checkData(log: Log, type: string, data: unknown): Awaitable<readonly SchemaIssue[]> {
  const schema = log.schemas.get(type)
  return schema === undefined ? [] : checkSchema(schema, data, 'data')
}

function refuseFaults(type: string, issues: Awaitable<readonly SchemaIssue[]>, checks: Promise<void>[]): void {
  if (!isPromise(issues)) {
    refuseIssues(type, issues)
    return
  }
  const check = issues.then(late => refuseIssues(type, late))
  // A check that fails before this one is awaited would leave its rejection unhandled.
  check.catch(() => {})
  checks.push(check)
}

/** `eventId` is given for an event that was read; without it, the event is to be written. */
export function refuseIssues(type: string, issues: readonly SchemaIssue[], eventId?: string): void {
  const issue = issues[0]
  if (issue === undefined) return
  const reason = `does not fit its schema: ${issue.message}`
  throw new InvalidEvent({ type, path: issue.path, reason, ...(eventId === undefined ? {} : { eventId }) })
}

export function checkExpected(expected: Expected): void {
  if (expected === 'any' || expected === 'empty' || expected === 'exists') return
  if (Number.isSafeInteger(expected) && expected >= 0) return
  throw new InvalidOption({
    option: 'expected',
    reason: `The option "expected" is ${describe(expected)}. It must be 'any', 'empty', 'exists' or a version from 0.`,
  })
}

function refuseRepeated(parts: readonly Part[]): void {
  if (parts.length === 1 && parts[0]!.events.length === 1) return
  if (parts.length > 1 && new Set(parts.map(part => part.stream)).size < parts.length)
    throw new InvalidOption({
      option: 'streams',
      reason: 'One append names a stream twice. Give all events of a stream together.',
    })
  const ids = parts.flatMap(part => part.events.map(event => event.id))
  if (ids.length > 1 && new Set(ids).size < ids.length) {
    const id = ids.find((each, at) => ids.indexOf(each) !== at)
    throw new InvalidEvent({ type: '', path: 'id', reason: `${id} is given to two events of one append` })
  }
}
