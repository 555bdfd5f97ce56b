/**
 * Specifications of handlers, without a database.
 *
 *     await specify(charge).given([placed]).stub('charge-card', 'receipt-1').expect([paid, packAsked])
 *
 * The handler runs once, for the first given event of a type it is for; a join runs for all of them. Steps run their own
 * code unless they are stubbed. Waits are over at once: `sleep` moves `ctx.now()`, `waitForEvent` is answered by the other
 * given events, and by nothing if it has a limit. Writes (`ctx.tx`, `complete`) need a store: a `tx` step must be
 * stubbed, and the function given to `complete` is not called.
 */
import { Aborted } from '../core/errors.ts'
import { describe } from '../core/options.ts'
import type { EventMap, NewEventIn, RecordedEvent } from '../events/definition.ts'
import { type Emission, emit, readResult } from '../workflows/emit.ts'
import { InvalidResult } from '../workflows/errors.ts'
import type { Handler } from '../workflows/handler.ts'
import type { Child } from '../workflows/steps/children.ts'
import { type HandlerContext, repeatable } from '../workflows/steps/context.ts'
import type { StepCall } from '../workflows/steps/steps.ts'
import { SpecificationFailed } from './errors.ts'
import { countingIds } from './fakes.ts'
import { asJson, type ExpectedError, fits, isExpectedError, isMatch } from './match.ts'

/** An event of the workflow, with its stream and time where the handler looks at them. */
export type GivenWorkflowEvent<M extends EventMap> = NewEventIn<M> & {
  readonly stream?: string | undefined
  readonly createdAt?: Date | string | undefined
}

/** An event that is expected; `stream` is compared if it is given. */
export type ExpectedEmission<M extends EventMap> = NewEventIn<M> & { readonly stream?: string | undefined }

/** Given events and results of steps, then emitted events. */
export interface HandlerSpecification<M extends EventMap> {
  /** The events of the workflow: the one that the handler runs for, and those that it waits for. */
  given(events: GivenWorkflowEvent<M> | readonly GivenWorkflowEvent<M>[]): GivenHandler<M>
}

export interface GivenHandler<M extends EventMap> {
  /** The result of a step instead of its own code: a value, an error that it throws, or a function that is called. */
  stub(step: string, result: unknown): GivenHandler<M>
  /** These events in this order, those of a batch included; [] for none; or an error. Only the fields given are compared. */
  expect(expected: ExpectedEmission<M> | readonly ExpectedEmission<M>[] | ExpectedError): Promise<void>
  /** The handler returns `compensate(reason, …)`, with these events. */
  expectCompensation(
    reason: string | RegExp | undefined,
    emitted?: ExpectedEmission<M> | readonly ExpectedEmission<M>[],
  ): Promise<void>
}

type Stubs = ReadonlyMap<string, unknown>

export function specifyHandler<M extends EventMap>(
  handler: Handler<M>,
  refuseAwait: () => never,
): HandlerSpecification<M> {
  return {
    given: events =>
      givenOf(handler as unknown as Handler, listOf(events) as readonly AnyGiven[], new Map(), refuseAwait),
  }
}

/** A given event of any map. */
type AnyGiven = GivenWorkflowEvent<object>

function givenOf<M extends EventMap>(
  handler: Handler,
  given: readonly AnyGiven[],
  stubs: Stubs,
  refuseAwait: () => never,
): GivenHandler<M> {
  const names = given.length === 0 ? 'nothing' : given.map(event => event.type).join(', ')
  const what = `Given ${names}, handler "${handler.name}"`
  return Object.assign(
    {
      stub: (step: string, result: unknown) =>
        givenOf<M>(handler, given, new Map([...stubs, [step, result]]), refuseAwait),
      async expect(expected: unknown) {
        const outcome = await run(handler, given, stubs)
        const actual = outcome.error ?? outcome.emitted
        if (isExpectedError(expected)) {
          if (!isMatch(expected, outcome.error))
            throw new SpecificationFailed({ what, expected, actual }, outcome.error)
          return
        }
        if (outcome.compensation !== undefined)
          throw new SpecificationFailed({
            what,
            expected,
            actual: { compensation: outcome.compensation, emitted: actual },
          })
        checkEmitted(what, expected, outcome)
      },
      async expectCompensation(reason: string | RegExp | undefined, emitted: unknown = []) {
        const outcome = await run(handler, given, stubs)
        const { compensation, error } = outcome
        const fitsReason =
          reason instanceof RegExp ? reason.test(compensation?.reason ?? '') : compensation?.reason === reason
        if (compensation === undefined || !fitsReason)
          throw new SpecificationFailed(
            { what, expected: { compensation: { reason } }, actual: error ?? { compensation } },
            error,
          )
        checkEmitted(what, emitted, outcome)
      },
    },
    // biome-ignore lint/suspicious/noThenProperty: awaited by mistake, it is an error instead of a test without a check.
    { then: refuseAwait },
  ) as GivenHandler<M>
}

function checkEmitted(what: string, expected: unknown, { emitted, error }: Outcome): void {
  if (error !== undefined) throw new SpecificationFailed({ what, expected, actual: error }, error)
  const wanted = listOf(expected as ExpectedEmission<object>)
  const isSame =
    wanted.length === emitted.length &&
    wanted.every((event, at) =>
      Object.entries(event).every(([key, value]) => value === undefined || fits(asJson(value), emitted[at]![key])),
    )
  if (!isSame) throw new SpecificationFailed({ what, expected: wanted, actual: emitted })
}

interface Outcome {
  /** Each with the options of its emission, as it would be stored. */
  readonly emitted: readonly Readonly<Record<string, unknown>>[]
  readonly compensation?: { readonly reason: string | undefined } | undefined
  readonly error?: unknown
}

async function run(handler: Handler, given: readonly AnyGiven[], stubs: Stubs): Promise<Outcome> {
  const recorded = given.map(recordedEvent)
  const own = handler.kind === 'join' ? recorded.filter(isFor) : recorded.filter(isFor).slice(0, 1)
  if (own.length === 0)
    throw new SpecificationFailed({
      what: `Handler "${handler.name}" runs for ${handler.types?.join(', ') ?? 'any event'}`,
      expected: 'a given event of such a type',
      actual: recorded.map(({ type }) => type),
    })
  if (handler.transition !== undefined)
    throw new TypeError(`Handler "${handler.name}" has a transition, which reads a stream: test it with testStore.`)
  const first = own[0]!
  if (handler.when?.(first) === false) return { emitted: [] }
  const started: Emission[] = []
  const called = new Set<string>()
  const context = contextOf(
    handler,
    first,
    recorded.filter(event => !own.includes(event)),
    stubs,
    called,
    started,
  )
  try {
    const result = await handler.run(handler.kind === 'join' ? own : first, context as never)
    const read = readResult(result)
    if ('reason' in read) throw new InvalidResult({ handler: handler.name, reason: read.reason })
    const unused = [...stubs.keys()].filter(name => !called.has(name))
    if (unused.length > 0)
      throw new SpecificationFailed({
        what: `Handler "${handler.name}" did not call the stubbed ${unused.map(name => `"${name}"`).join(', ')}`,
        expected: [...stubs.keys()],
        actual: [...called],
      })
    const flat = read.emitted.flatMap(each => (each.kind === 'batch' ? each.emissions : [each]))
    return { emitted: [...started, ...flat].map(emittedEvent), compensation: read.compensation }
  } catch (error) {
    if (error instanceof SpecificationFailed) throw error
    return { emitted: [], error: error ?? new Error(`threw ${String(error)}`) }
  }

  function isFor({ type }: RecordedEvent): boolean {
    return handler.types === undefined || handler.types.includes(type)
  }
}

function emittedEvent({ type, data, options }: Emission): Readonly<Record<string, unknown>> {
  const { stream, key, id, headers } = options
  const shown = { type, data: asJson(data), stream, key, id, headers }
  return Object.fromEntries(Object.entries(shown).filter(([, value]) => value !== undefined))
}

function recordedEvent(event: AnyGiven, index: number): RecordedEvent {
  const id = event.id ?? ids(index)
  const { type, schemaVersion = 1, headers = {}, correlationId = workflow, causationId, userId } = event
  return {
    ...{ id, type, schemaVersion, headers, correlationId, causationId, userId },
    data: asJson(event.data),
    stream: event.stream ?? `workflow-${workflow}`,
    version: index + 1,
    position: index + 1,
    createdAt: new Date(event.createdAt ?? began),
  }
}

const began = '2030-01-01T00:00:00.000Z'
const workflow = '00000000-0000-7000-8000-00000000f10e'
const execution = '00000000-0000-7000-8000-00000000e8ec'

function ids(index: number): string {
  const counting = countingIds()
  let id = counting.next()
  for (let at = 0; at < index; at++) id = counting.next()
  return id
}

function contextOf(
  handler: Handler,
  event: RecordedEvent,
  others: readonly RecordedEvent[],
  stubs: Stubs,
  called: Set<string>,
  started: Emission[],
): HandlerContext {
  let now = event.createdAt.getTime()
  const left = [...others]
  const stubbed = async (name: string, code: (() => unknown) | undefined): Promise<unknown> => {
    called.add(name)
    if (!stubs.has(name)) {
      if (code !== undefined) return asJson(await code())
      throw new TypeError(
        `Step "${name}" writes to a database. Give its result: .stub('${name}', …), or use testStore.`,
      )
    }
    const stub = stubs.get(name)
    if (stub instanceof Error) throw stub
    return asJson(typeof stub === 'function' ? await (stub as () => unknown)() : stub)
  }
  const context = {
    ...repeatable(execution, () => new Date(now)),
    ...{ emit, executionId: execution, correlationId: event.correlationId, attempt: 1 },
    ...{ handler: handler.name, version: handler.version, signal: new AbortController().signal },
    join: { batchId: workflow, size: 1 + others.length, failed: [], empty: [], isPartial: false },
    step: (name: string, code: (call: StepCall) => unknown) =>
      stubbed(name, () => code({ signal: new AbortController().signal, call: 1 })),
    tx: (name: string) => stubbed(name, undefined),
    async sleep(first: string | number, ms?: number) {
      now += typeof first === 'number' ? first : (ms ?? 0)
    },
    async sleepUntil(first: string | Date, at?: Date) {
      now = Math.max(now, (typeof first === 'string' ? at! : first).getTime())
    },
    async waitForEvent(type: string, options: { match?: object; timeoutMs?: number } = {}) {
      const at = left.findIndex(each => each.type === type && hasContent(options.match ?? {}, each.data))
      if (at >= 0) return left.splice(at, 1)[0]
      if (options.timeoutMs === undefined)
        throw new SpecificationFailed(
          {
            what: `Handler "${handler.name}" waits for ${type}`,
            expected: `a given event ${describe(type)}`,
            actual: others.map(each => each.type),
          },
          new Aborted({}),
        )
      now += options.timeoutMs
      return undefined
    },
    async start(type: string, data: unknown): Promise<Child> {
      started.push(emit(type, data))
      const settled = { correlationId: workflow, state: 'completed', deadLetters: 0, lastType: type, reason: undefined }
      return {
        correlationId: workflow,
        waitUntilSettled: () => stubbed(type, () => settled) as ReturnType<Child['waitUntilSettled']>,
      }
    },
  }
  return context as unknown as HandlerContext
}

/** As jsonb's `@>` compares objects. */
function hasContent(wanted: unknown, data: unknown): boolean {
  if (typeof wanted !== 'object' || wanted === null) return wanted === data
  if (typeof data !== 'object' || data === null) return false
  return Object.entries(wanted).every(([key, value]) => hasContent(value, (data as Record<string, unknown>)[key]))
}

function listOf<T>(one: T | readonly T[]): readonly T[] {
  return Array.isArray(one) ? one : [one as T]
}
