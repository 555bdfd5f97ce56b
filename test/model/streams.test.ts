/** Random sequences of stream operations, compared step by step with a model in memory. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { AppendOptions } from '../../src/events/append/append.ts'
import type { Store } from '../../src/store.ts'
import { openShop, outcome, type ShopMap } from '../support/shop.ts'
import { type Given, type Refused, type Stored, StreamModel } from './stream-model.ts'

interface Real {
  readonly store: Store<ShopMap>
  /** Makes names and ids of one run differ from those of all others. */
  readonly walk: number
}

type Command = fc.AsyncCommand<StreamModel, Real>

const streams = fc.constantFrom('a', 'a', 'b', 'c')
const expectations = fc.oneof(
  fc.constantFrom('any' as const, 'any' as const, 'any' as const, 'empty' as const, 'exists' as const),
  fc.integer({ min: 0, max: 4 }),
)
// Few values, so that repeats, duplicates and mismatches are common.
const events = fc.array(
  fc.record({
    total: fc.constantFrom(0, 0, 0, 1),
    id: fc.option(fc.integer({ min: 0, max: 2 }), { nil: undefined, freq: 3 }),
  }),
  { minLength: 1, maxLength: 2 },
)
const options = fc.record({
  expected: expectations,
  key: fc.option(fc.constantFrom('k1', 'k2'), { nil: undefined, freq: 3 }),
  onRepeat: fc.constantFrom('return' as const, 'return' as const, 'error' as const),
  allowArchived: fc.boolean(),
})

interface Appending {
  readonly stream: string
  readonly events: readonly Given[]
  readonly options: { key: string | undefined } & Required<
    Pick<AppendOptions, 'expected' | 'onRepeat' | 'allowArchived'>
  >
}

const appending = fc
  .record({ stream: streams, events: events.map(distinct), options })
  .map(given => command(`append ${JSON.stringify(given)}`, (model, real) => append(model, real, given as Appending)))

/** A repeat of an earlier append: unchanged, as after a lost answer, or with one thing changed. */
const repeating = fc.record({ back: fc.integer({ min: 1, max: 3 }), change: options }).chain(({ back, change }) =>
  fc.constantFrom('nothing', 'the key', 'all options').map(what =>
    command(`repeat ${back} back, changed ${what} of ${JSON.stringify(change)}`, async (model, real) => {
      const earlier = (model.said as Appending[]).at(-back)
      if (earlier === undefined) return
      const changed = what === 'nothing' ? {} : what === 'the key' ? { key: change.key } : change
      await append(model, real, { ...earlier, options: { ...earlier.options, ...changed } as Appending['options'] })
    }),
  ),
)

async function append(model: StreamModel, real: Real, given: Appending): Promise<void> {
  const { stream, events, options } = given
  const sent = events.map(each => eventOf(real, each))
  const { value, error } = await outcome(
    real.store.events.append(named(real, stream), sent, realOptions(real, options)),
  )
  const wanted = model.append([{ stream, events, expected: options.expected! }], {
    key: options.key,
    onRepeat: options.onRepeat!,
    allowArchived: options.allowArchived!,
    ids: value?.eventIds,
  })
  model.said.push(given)
  compare(real, value === undefined ? error : [value], wanted)
}

const appendingToTwo = fc.record({ first: events, second: events, expected: expectations }).map(given =>
  command(`append to two ${JSON.stringify(given)}`, async (model, real) => {
    const parts = [
      { stream: 'a', events: withoutIds(given.first), expected: 'any' as const },
      { stream: 'b', events: withoutIds(given.second), expected: given.expected },
    ]
    const { value, error } = await outcome(
      real.store.events.appendMany(
        parts.map(part => ({
          stream: named(real, part.stream),
          expected: part.expected,
          events: part.events.map(each => eventOf(real, each)),
        })),
      ),
    )
    const ids = value?.flatMap(result => result.eventIds)
    compare(real, value ?? error, model.append(parts, { onRepeat: 'return', allowArchived: false, ids }))
  }),
)

const reading = fc
  .record({
    stream: streams,
    after: fc.integer({ min: 0, max: 4 }),
    direction: fc.constantFrom('forwards' as const, 'backwards' as const),
    includeArchived: fc.boolean(),
    pageSize: fc.integer({ min: 1, max: 3 }),
  })
  .map(({ stream, ...how }) =>
    command(`read ${stream} ${JSON.stringify(how)}`, async (model, real) => {
      const found = await real.store.events.read(named(real, stream), how).toArray()

      expect(found.map(event => [event.version, event.id])).toEqual(
        model.read(stream, how).map(event => [event.version, event.id]),
      )
    }),
  )

const readingAll = fc.boolean().map(includeArchived =>
  command(`read all ${includeArchived}`, async (model, real) => {
    const own = ['a', 'b', 'c'].map(stream => named(real, stream))
    const found = await real.store.events.readAll({ streams: own, includeArchived }).toArray()

    expect(found.map(event => event.id)).toEqual(model.readAll(includeArchived).map(event => event.id))
  }),
)

const marks = ['archive', 'archive', 'restore', 'restore', 'restore', 'tombstone'] as const

const marking = fc.record({ stream: streams, act: fc.constantFrom(...marks) }).map(({ stream, act }) =>
  command(`${act} ${stream}`, async (model, real) => {
    const { error } = await outcome(real.store.streams[act](named(real, stream)))
    const last = await real.store.events
      .read(named(real, stream), { direction: 'backwards', includeArchived: true })
      .first()

    expect((error as { code?: string } | undefined)?.code).toBe(model.mark(stream, act, last?.id))
  }),
)

const resolving = fc.constantFrom('x', 'y').map(alias =>
  command(`resolve ${alias}`, async (model, real) => {
    const stream = await real.store.streams.resolve(named(real, alias))

    expect(stream).toBe(model.resolve(alias, stream))
  }),
)

const describing = streams.map(stream =>
  command(`describe ${stream}`, async (model, real) => {
    const found = await real.store.streams.describe(named(real, stream))

    expect(found && { version: found.version, state: found.state }).toEqual(model.describe(stream))
  }),
)

test('streams behave like the reference model under any sequence of operations', async () => {
  const { store } = await openShop()
  let walks = 0
  const kinds = [appending, appending, appending, repeating, repeating, appendingToTwo, reading, readingAll, marking]
  const commands = fc.commands([...kinds, resolving, describing] as fc.Arbitrary<Command>[], {
    maxCommands: 40,
    size: 'max',
  })

  await fc.assert(
    fc.asyncProperty(commands, walk =>
      fc.asyncModelRun(() => ({ model: new StreamModel(), real: { store, walk: ++walks } }), walk),
    ),
    { numRuns: 60 },
  )
})

function command(name: string, run: (model: StreamModel, real: Real) => Promise<void>): Command {
  return { check: () => true, run, toString: () => name }
}

function compare(real: Real, found: unknown, wanted: Refused | Stored[]): void {
  if (!Array.isArray(wanted)) {
    expect(found).toMatchObject(wanted)
    return
  }
  expect(found).toMatchObject(wanted.map(result => ({ ...result, stream: named(real, result.stream) })))
}

function named(real: Real, name: string): string {
  return `${name}-${real.walk}`
}

function eventOf(real: Real, { total, id }: Given) {
  return { type: 'OrderPlaced' as const, data: { total }, id: id === undefined ? undefined : uuid(real, id) }
}

function uuid(real: Real, id: number): string {
  return `00000000-0000-7000-8000-${String(real.walk).padStart(10, '0')}${String(id).padStart(2, '0')}`
}

function realOptions(real: Real, given: { key: string | undefined } & AppendOptions): AppendOptions {
  const { key, ...rest } = given
  return { ...rest, idempotencyKey: key === undefined ? undefined : named(real, key) }
}

/** An append that gives one id to two events is refused before it is sent, which is tested elsewhere. */
function distinct(given: readonly Given[]): Given[] {
  const seen = new Set<number>()
  return given.map(({ total, id }) => {
    if (id === undefined || seen.has(id)) return { total, id: undefined }
    seen.add(id)
    return { total, id }
  })
}

function withoutIds(given: readonly Given[]): Given[] {
  return given.map(({ total }) => ({ total, id: undefined }))
}
