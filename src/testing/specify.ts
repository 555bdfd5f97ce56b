/**
 * Given these events, when this command comes, expect those events.
 *
 *     specify(Order).given([placed, paid]).when({ type: 'Ship', carrier: 'Swift' }).expect([shipped])
 *     specify(Order).given([placed]).when({ type: 'Ship', carrier: 'Swift' }).expect(/pay first/)
 *     specify(Order).given([placed]).when({ type: 'Pay' }).expectState({ status: 'paid' })
 *
 *     await specify(orders).given([{ stream: 'order-1', ...placed }]).expect({ 'order-1': { cents: 4200 } })
 *     await specify(charge).given([placed]).stub('charge-card', 'receipt-1').expect([paid])     (specify-handler.ts)
 *
 * An aggregate folds, decides and validates as in a commit, and a handler runs, without a database. A projection runs in a
 * test store. Matchers of a test runner, such as `expect.any(String)`, may stand for any expected value. A difference is
 * thrown as `SpecificationFailed`, which any test runner shows.
 */
import type { Aggregate, AnyEvent } from '../aggregates/aggregate.ts'
import { asRead } from '../aggregates/load.ts'
import { Loaded } from '../aggregates/loaded.ts'
import { systemClock } from '../core/clock.ts'
import { InvalidOption } from '../core/errors.ts'
import { describe } from '../core/options.ts'
import { identifier } from '../database/sql.ts'
import type { EventMap, NewEventIn, NewEventOf, UntypedEvents } from '../events/definition.ts'
import type { DocumentProjection } from '../projections/document-projection.ts'
import type { Projection } from '../projections/projection.ts'
import { tableNames } from '../projections/table.ts'
import type { Store, StoreOptions } from '../store.ts'
import type { Handler } from '../workflows/handler.ts'
import { SpecificationFailed } from './errors.ts'
import { asJson, type ExpectedError, fits, isExpectedError, isMatch } from './match.ts'
import { settle } from './settle.ts'
import { type HandlerSpecification, specifyHandler } from './specify-handler.ts'
import { openTestStore, type TestPlace } from './test-store.ts'

/**
 * A specification of an aggregate by the events it decides.
 *
 * @example
 * ```ts
 * specify(Order).given([placed]).when({ carrier: 'Swift' }).expect([{ type: 'OrderShipped', data: { carrier: 'Swift' } }])
 * ```
 */
export function specify<State, Command, M extends EventMap>(
  aggregate: Aggregate<State, Command, M>,
): AggregateSpecification<State, Command, M>
/** A specification of a projection by its documents. */
export function specify<Doc>(
  projection: DocumentProjection<Doc>,
  options?: SpecifyOptions,
): ProjectionSpecification<Readonly<Record<string, Doc>>>
/** A specification of any other projection by the rows of its tables. */
export function specify(
  projection: Projection,
  options?: SpecifyOptions,
): ProjectionSpecification<Readonly<Record<string, readonly object[]>>>
/** A specification of a handler or a join by the events it emits. */
export function specify<M extends EventMap>(handler: Handler<M>): HandlerSpecification<M>
export function specify(subject: Aggregate | Projection | Handler, options: SpecifyOptions = {}): unknown {
  if (subject.kind === 'aggregate') return specifyAggregate(subject)
  if (subject.kind === 'projection') return specifyProjection(subject, options)
  if (subject.kind === 'handler' || subject.kind === 'join') return specifyHandler(subject, refuseAwait)
  throw new InvalidOption({
    option: 'subject',
    reason: `A specification is one of an aggregate, a projection, a handler or a join, not of ${describe(subject.kind ?? subject)}.`,
  })
}

/** Given events, when a command, then events. */
export interface AggregateSpecification<State, Command, M extends EventMap = object> {
  /** The events of the stream so far. */
  given(events: NewEventIn<M> | readonly NewEventIn<M>[]): {
    when(command: Command): {
      /** These events in this order, of which only the fields given are compared; [] for none; or an error. */
      expect(expected: NewEventIn<M> | readonly NewEventIn<M>[] | ExpectedError): void
      /** The state that the decision leads to. */
      expectState(expected: State): void
    }
  }
}

/** Given events, then documents or rows. */
export interface ProjectionSpecification<Expected> {
  given(
    events: GivenEvent | readonly GivenEvent[],
    options?: GivenOptions,
  ): {
    /** All documents by their ids; or the rows of each table, in the order of their primary keys. */
    expect(expected: Expected): Promise<void>
  }
}

/** An event, its stream (default `stream-1`) and its time (default: the present, or that of the event before it). */
export type GivenEvent = NewEventOf<string, unknown> & {
  readonly stream?: string | undefined
  readonly createdAt?: Date | string | undefined
}

export interface GivenOptions {
  /** Deliver all events a second time and expect the same: proves that applying them again changes nothing. */
  repeat?: boolean | undefined
}

/** Where it runs. Default: the embedded engine that all test stores share. */
export type SpecifyOptions = Omit<TestPlace, 'at'> & Pick<StoreOptions, 'upcasters'>

/** Thrown by `await` on a specification that ends before `expect`: such a test would pass without a check. */
function refuseAwait(): never {
  throw new TypeError('A specification must not be awaited before its end. End it with .expect(…).')
}

// ── aggregates ───────────────────────────────────────────────────────────────

function specifyAggregate(aggregate: Aggregate): AggregateSpecification<unknown, unknown> {
  return {
    given: events => ({
      when(command) {
        const what = `Given ${namesOf(listOf(events))}, when ${commandName(command)}`
        const outcome = () => decided(aggregate, listOf(events), command)
        return {
          // biome-ignore lint/suspicious/noThenProperty: awaited by mistake, it is an error instead of a test without a check.
          then: refuseAwait,
          expect: expected => checkDecision(what, expected, outcome()),
          expectState(expected) {
            const { error, state } = outcome()
            if (error !== undefined) throw new SpecificationFailed({ what, expected, actual: error }, error)
            if (!fits(expected, state)) throw new SpecificationFailed({ what, expected, actual: state })
          },
        }
      },
    }),
  }
}

interface Outcome {
  readonly events: readonly AnyEvent[]
  readonly state: unknown
  readonly error: unknown
}

function decided(aggregate: Aggregate, given: readonly AnyEvent[], command: unknown): Outcome {
  const stream = `${aggregate.name}-1`
  const begun = { state: aggregate.initial(), version: 0, eventId: undefined }
  const loaded = new Loaded(aggregate, stream, begun, { clock: systemClock, maxEventBytes: maxBytes })
  loaded.append(given)
  loaded.committed(given.length)
  try {
    const events = loaded.decide(command)
    const { state } = loaded.staged()
    return { events, state, error: undefined }
  } catch (error) {
    return { events: [], state: undefined, error: error ?? new Error(`threw ${String(error)}`) }
  }
}

const maxBytes = Number.MAX_SAFE_INTEGER

function checkDecision(what: string, expected: AnyEvent | readonly AnyEvent[] | ExpectedError, outcome: Outcome): void {
  const actual = outcome.error ?? outcome.events.map(event => asRead(event, maxBytes))
  if (isExpectedError(expected)) {
    if (!isMatch(expected, outcome.error)) throw new SpecificationFailed({ what, expected, actual }, outcome.error)
    return
  }
  const wanted = listOf(expected)
  const fits =
    outcome.error === undefined &&
    wanted.length === outcome.events.length &&
    wanted.every((event, at) => fitsEvent(event, (actual as readonly AnyEvent[])[at]!))
  if (!fits) throw new SpecificationFailed({ what, expected: wanted, actual }, outcome.error)
}

function fitsEvent(expected: AnyEvent, actual: AnyEvent): boolean {
  return Object.entries(asJson(expected) as AnyEvent).every(([key, value]) =>
    fits(value, (actual as unknown as Record<string, unknown>)[key]),
  )
}

function listOf<T>(one: T | readonly T[]): readonly T[] {
  return Array.isArray(one) ? one : [one as T]
}

function namesOf(events: readonly AnyEvent[]): string {
  return events.length === 0 ? 'nothing' : events.map(event => event.type).join(', ')
}

function commandName(command: unknown): string {
  const type = (command as { type?: unknown } | null | undefined)?.type
  return typeof type === 'string' ? type : String(command)
}

// ── projections ──────────────────────────────────────────────────────────────

function specifyProjection(
  projection: Projection,
  options: SpecifyOptions,
): ProjectionSpecification<Readonly<Record<string, unknown>>> {
  return {
    given: (events, { repeat = false } = {}) => ({
      // biome-ignore lint/suspicious/noThenProperty: awaited by mistake, it is an error instead of a test without a check.
      then: refuseAwait,
      expect: expected => checkProjection(projection, options, listOf(events), expected, repeat),
    }),
  }
}

async function checkProjection(
  projection: Projection,
  { upcasters, ...place }: SpecifyOptions,
  given: readonly GivenEvent[],
  expected: Readonly<Record<string, unknown>>,
  repeat: boolean,
): Promise<void> {
  const first = given.find(event => event.createdAt !== undefined)?.createdAt
  await using opened = await openTestStore<UntypedEvents>({ upcasters }, { ...place, at: first })
  const { store, time } = opened
  // The first failure ends the test: a retry would hide it.
  const strict = { retries: 0, onFailure: 'stop' as const, byType: undefined }
  const subject = { ...projection, options: { ...projection.options, ...strict } }
  await store.projections.register(subject)
  for (const { stream = defaultStream, createdAt, ...event } of given) {
    if (createdAt !== undefined) await time.moveTo(createdAt)
    await store.events.append(stream, event)
  }
  await settle(store)
  const what = `Projection "${projection.name}" of ${given.length} events`
  compare(what, expected, await readModel(store, subject, given))
  if (!repeat || projection.lifecycle === 'live') return
  await store.consumers.reset(projection, 0)
  await settle(store)
  compare(`${what}, delivered twice`, expected, await readModel(store, subject, given))
}

const defaultStream = 'stream-1'

/** As JSON, which is how a document is stored, and in which numbers of any column type compare. */
function compare(what: string, expected: unknown, actual: unknown): void {
  const wanted = asJson(expected)
  if (!fits(wanted, actual)) throw new SpecificationFailed({ what, expected: wanted, actual })
}

async function readModel(store: Store, projection: Projection, given: readonly GivenEvent[]): Promise<unknown> {
  if (projection.lifecycle === 'live') return readLive(store, projection as DocumentProjection<object>, given)
  const names = tableNames(store.schema.name, projection)
  return store.transaction(async tx => {
    if ('documentTable' in projection) {
      const table = names((projection as DocumentProjection<unknown>).documentTable)
      const rows = await tx.query<{ id: string; body: unknown }>(
        `select id, body from ${table} where deleted_at is null order by id`,
      )
      return Object.fromEntries(rows.map(({ id, body }) => [id, body]))
    }
    const tables: Record<string, unknown> = {}
    for (const { name, declared } of projection.tables) {
      const keys = declared.primaryKey.map(column => `t.${identifier(column)}`).join(', ')
      const rows = await tx.query<{ row: unknown }>(
        `select to_jsonb(t) as row from ${names(name)} as t order by ${keys}`,
      )
      tables[name] = rows.map(({ row }) => row)
    }
    return tables
  })
}

async function readLive(
  store: Store,
  projection: DocumentProjection<object>,
  given: readonly GivenEvent[],
): Promise<unknown> {
  const documents: Record<string, unknown> = {}
  for (const stream of new Set(given.map(event => event.stream ?? defaultStream))) {
    const document = await store.documents(projection).get(stream)
    if (document !== undefined) documents[stream] = JSON.parse(JSON.stringify(document.data))
  }
  return documents
}
