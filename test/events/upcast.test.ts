import { describe, expect, test, vi } from 'vitest'
import { InvalidName, InvalidOption } from '../../src/core/errors.ts'
import type { RecordedEvent } from '../../src/events/definition.ts'
import { UpcasterCycle, UpcasterFailed } from '../../src/events/errors.ts'
import { toRecordedEvent } from '../../src/events/read/rows.ts'
import { defineUpcaster, type Upcaster, upcasters } from '../../src/events/read/upcast.ts'

const id = '0190b2f0-6a1c-7def-8123-456789abcdef'

function stored(type: string, schemaVersion: number, data: unknown = { total: 99 }): RecordedEvent {
  return toRecordedEvent(7, 'order-42', 1, id, type, schemaVersion, data, {}, id, null, null, new Date(0))
}

const withCurrency = defineUpcaster('OrderPlaced', {
  from: 1,
  to: 2,
  run: (data: object) => ({ ...data, currency: 'EUR' }),
})
const inCents = defineUpcaster('OrderPlaced', {
  from: 2,
  to: 3,
  run: ({ total, ...rest }: { total: number }) => ({
    ...rest,
    cents: total * 100,
  }),
})
const renamed = defineUpcaster('OrderCreated', {
  from: 1,
  toType: 'OrderPlaced',
  to: 1,
  run: ({ sum }: { sum: number }) => ({
    total: sum,
  }),
})

describe('a chain of steps', () => {
  test('brings an old order to the newest shape, and changes nothing else', async () => {
    const old = stored('OrderPlaced', 1)

    const read = await upcasters([inCents, withCurrency]).apply(old)

    expect({ ...read }).toEqual({ ...old, schemaVersion: 3, data: { currency: 'EUR', cents: 9900 } })
    expect(old.data).toEqual({ total: 99 })
  })

  test('continues through a renamed type', () => {
    const read = upcasters([renamed, withCurrency, inCents]).apply(stored('OrderCreated', 1, { sum: 5 }))

    expect(read).toMatchObject({ type: 'OrderPlaced', schemaVersion: 3, data: { currency: 'EUR', cents: 500 } })
  })

  test('gives each function the event as it is at that step', () => {
    const seen: [string, number][] = []
    const note = (data: unknown, event: RecordedEvent) => {
      seen.push([event.type, event.schemaVersion])
      return data
    }
    const steps = [
      defineUpcaster('OrderCreated', { from: 1, toType: 'OrderPlaced', to: 1, run: note }),
      defineUpcaster('OrderPlaced', { from: 1, to: 2, run: note }),
    ]

    void upcasters(steps).apply(stored('OrderCreated', 1))

    expect(seen).toEqual([
      ['OrderCreated', 1],
      ['OrderPlaced', 1],
    ])
  })

  test('returns an event that no step matches as it is, synchronously', () => {
    const registry = upcasters([withCurrency])
    const events = [stored('OrderPlaced', 2), stored('OrderPlaced', 9), stored('OrderPaid', 1)]

    for (const event of events) expect(registry.apply(event)).toBe(event)
    expect(upcasters([]).apply(events[0]!)).toBe(events[0])
  })

  test('is a promise only from the first function that gave one', async () => {
    const lookedUp = defineUpcaster('OrderPlaced', {
      from: 2,
      to: 3,
      run: async (data: object) => ({ ...data, country: 'AT' }),
    })
    const rounded = defineUpcaster('OrderPlaced', {
      from: 3,
      to: 4,
      run: (data: object) => ({ ...data, rounded: true }),
    })

    const read = upcasters([withCurrency, lookedUp, rounded]).apply(stored('OrderPlaced', 1))

    expect(read).toBeInstanceOf(Promise)
    expect(await read).toMatchObject({
      schemaVersion: 4,
      data: { total: 99, currency: 'EUR', country: 'AT', rounded: true },
    })
  })
})

describe('a function that fails', () => {
  const broken = new Error('no such currency')
  const failing: [string, Upcaster][] = [
    ['throws', defineUpcaster('OrderPlaced', { from: 2, to: 3, run: () => throwIt(broken) })],
    ['rejects', defineUpcaster('OrderPlaced', { from: 2, to: 3, run: () => Promise.reject(broken) })],
  ]

  test.each(failing)('and %s is an UpcasterFailed with the step, the event and the cause', async (_, step) => {
    const read = async () => upcasters([withCurrency, step]).apply(stored('OrderPlaced', 1))

    await expect(read).rejects.toThrow(UpcasterFailed)
    await expect(read).rejects.toMatchObject({ type: 'OrderPlaced', schemaVersion: 2, eventId: id, cause: broken })
  })

  test('after an asynchronous one is an UpcasterFailed of its own step, once', async () => {
    const waits = defineUpcaster('OrderPlaced', { from: 1, to: 2, run: async data => data })
    const fails = defineUpcaster('OrderPlaced', { from: 2, to: 3, run: () => throwIt(broken) })

    const read = async () => upcasters([waits, fails]).apply(stored('OrderPlaced', 1))

    await expect(read).rejects.toMatchObject({ code: 'upcaster_failed', schemaVersion: 2, cause: broken })
  })

  test('because it forgot to return does not pass on an event without data', () => {
    const forgetful = defineUpcaster('OrderPlaced', { from: 1, to: 2, run: () => {} })

    expect(() => upcasters([forgetful]).apply(stored('OrderPlaced', 1))).toThrow(UpcasterFailed)
  })
})

describe('RB-58 the writer states the version', () => {
  test('RB-58 an event written in the current version is not changed by any step', () => {
    const change = vi.fn(data => data)
    const registry = upcasters([
      defineUpcaster('OrderPlaced', { from: 1, to: 2, run: change }),
      defineUpcaster('OrderPlaced', { from: 2, to: 4, run: change }),
      defineUpcaster('OrderPaid', { from: '*', to: 5, run: change }),
    ])

    for (const type of ['OrderPlaced', 'OrderPaid', 'OrderShipped']) {
      const written = stored(type, registry.currentVersion(type))
      expect(registry.apply(written)).toBe(written)
    }
    expect(change).not.toHaveBeenCalled()
  })

  test('RB-58 the current version is the one the steps lead to, 1 where there are none', () => {
    const registry = upcasters([
      renamed,
      withCurrency,
      inCents,
      defineUpcaster('OrderPaid', { from: '*', to: 5, run: data => data }),
      defineUpcaster('OrderBilled', { from: 1, toType: 'OrderInvoiced', to: 3, run: data => data }),
    ])

    expect(registry.currentVersion('OrderPlaced')).toBe(3)
    expect(registry.currentVersion('OrderPaid')).toBe(5)
    expect(registry.currentVersion('OrderInvoiced')).toBe(3)
    expect(registry.currentVersion('OrderCreated')).toBe(1)
    expect(registry.currentVersion('OrderShipped')).toBe(1)
  })

  test('RB-58 a step back to a lower version moves the current version with it', () => {
    const registry = upcasters([
      defineUpcaster('OrderPlaced', { from: 1, to: 3, run: data => data }),
      defineUpcaster('OrderPlaced', { from: 3, to: 2, run: data => data }),
    ])

    expect(registry.currentVersion('OrderPlaced')).toBe(2)
    expect(registry.path('OrderPlaced', 2)).toHaveLength(1)
  })
})

describe('RB-59 the wildcard', () => {
  test('RB-59 a wildcard that stays in its type applies once, to the versions below its target', () => {
    const change = vi.fn((data: object) => ({ ...data, currency: 'EUR' }))
    const registry = upcasters([defineUpcaster('OrderPlaced', { from: '*', to: 4, run: change })])

    for (const version of [1, 2, 3]) {
      change.mockClear()
      expect(registry.apply(stored('OrderPlaced', version))).toMatchObject({ schemaVersion: 4 })
      expect(change).toHaveBeenCalledOnce()
    }
    for (const version of [4, 5]) {
      const current = stored('OrderPlaced', version)
      expect(registry.apply(current)).toBe(current)
    }
  })

  test('RB-59 a synchronous wildcard is applied on the synchronous path', () => {
    const registry = upcasters([
      defineUpcaster('OrderCreated', { from: '*', toType: 'OrderPlaced', to: 1, run: data => data }),
    ])

    const read = registry.apply(stored('OrderCreated', 17))

    expect(read).not.toBeInstanceOf(Promise)
    expect(read).toMatchObject({ type: 'OrderPlaced', schemaVersion: 1 })
  })

  test('RB-59 an exact step is applied before the wildcard, which then takes over', () => {
    const taken: string[] = []
    const step = (name: string) => (data: unknown) => {
      taken.push(name)
      return data
    }
    const registry = upcasters([
      defineUpcaster('OrderPlaced', { from: '*', to: 5, run: step('any') }),
      defineUpcaster('OrderPlaced', { from: 1, to: 2, run: step('first') }),
      defineUpcaster('OrderPlaced', { from: 5, to: 6, run: step('last') }),
    ])

    expect(registry.apply(stored('OrderPlaced', 1))).toMatchObject({ schemaVersion: 6 })
    expect(taken).toEqual(['first', 'any', 'last'])
  })

  test('RB-59 a wildcard that is led back below its target is a cycle, found when it is registered', () => {
    const register = () =>
      upcasters([
        defineUpcaster('OrderPlaced', { from: '*', to: 3, run: data => data }),
        defineUpcaster('OrderPlaced', { from: 3, to: 1, run: data => data }),
      ])

    expect(register).toThrow(UpcasterCycle)
  })
})

describe('invalid steps are refused when they are registered', () => {
  const same = (data: unknown) => data

  test.each<[string, Upcaster[], string[]]>([
    ['to itself', [defineUpcaster('OrderPlaced', { from: 2, to: 2, run: same })], ['OrderPlaced v2', 'OrderPlaced v2']],
    [
      'there and back',
      [
        defineUpcaster('OrderPlaced', { from: 1, to: 2, run: same }),
        defineUpcaster('OrderPlaced', { from: 2, to: 1, run: same }),
      ],
      ['OrderPlaced v2', 'OrderPlaced v1', 'OrderPlaced v2'],
    ],
    [
      'of two wildcards',
      [
        defineUpcaster('OrderCreated', { from: '*', toType: 'OrderPlaced', to: 1, run: same }),
        defineUpcaster('OrderPlaced', { from: '*', toType: 'OrderCreated', to: 1, run: same }),
      ],
      ['OrderPlaced v1', 'OrderCreated v1', 'OrderPlaced v1'],
    ],
    [
      'reached from outside',
      [
        defineUpcaster('OrderMade', { from: 1, toType: 'OrderPlaced', to: 1, run: same }),
        defineUpcaster('OrderPlaced', { from: 1, to: 2, run: same }),
        defineUpcaster('OrderPlaced', { from: 2, to: 1, run: same }),
      ],
      ['OrderPlaced v1', 'OrderPlaced v2', 'OrderPlaced v1'],
    ],
  ])('a cycle %s, with its path', (_, steps, path) => {
    expect(() => upcasters(steps)).toThrow(expect.objectContaining({ code: 'upcaster_cycle', path }))
    expect(() => upcasters(steps)).toThrow(path.join(' → '))
  })

  test('two steps from the same version of a type', () => {
    const twice = [withCurrency, defineUpcaster('OrderPlaced', { from: 1, to: 3, run: same })]

    expect(() => upcasters(twice)).toThrow(InvalidOption)
    expect(() => upcasters(twice)).toThrow(/two upcasters from OrderPlaced version 1/)
  })

  test('two wildcards of a type', () => {
    const any = defineUpcaster('OrderPlaced', { from: '*', to: 3, run: same })

    expect(() => upcasters([any, any])).toThrow(InvalidOption)
  })

  test.each([0, -1, 1.5, Number.NaN, 2 ** 31])('the version %d', version => {
    expect(() => defineUpcaster('OrderPlaced', { from: version, to: 2, run: same })).toThrow(InvalidOption)
    expect(() => defineUpcaster('OrderPlaced', { from: 1, to: version, run: same })).toThrow(InvalidOption)
  })

  test('a type without a name', () => {
    expect(() => defineUpcaster('', { from: 1, to: 2, run: same })).toThrow(InvalidName)
    expect(() => defineUpcaster('OrderPlaced', { from: 1, toType: '', to: 2, run: same })).toThrow(InvalidName)
  })
})

describe('queries about the steps', () => {
  const registry = upcasters([renamed, withCurrency, inCents])

  test('a type is read from all stored types that can become it', () => {
    expect(registry.sourcesOf('OrderPlaced').sort()).toEqual(['OrderCreated', 'OrderPlaced'])
    expect(registry.sourcesOf('OrderPaid')).toEqual(['OrderPaid'])
  })

  test('a type is not its own source when it always becomes another, and is while one version may stay', () => {
    const step = { toType: 'OrderPlaced', to: 1 }
    const always = upcasters([defineUpcaster('OrderCreated', { from: '*', ...step, run: data => data })])

    expect(always.sourcesOf('OrderCreated')).toEqual([])
    expect(always.sourcesOf('OrderPlaced').sort()).toEqual(['OrderCreated', 'OrderPlaced'])
    expect(registry.sourcesOf('OrderCreated')).toEqual(['OrderCreated'])
  })

  test('a type only passed through on the way is neither a source nor a result', () => {
    const steps = [
      defineUpcaster('OrderMade', { from: '*', toType: 'OrderCreated', to: 1, run: data => data }),
      defineUpcaster('OrderCreated', { from: '*', toType: 'OrderPlaced', to: 1, run: data => data }),
    ]

    expect(upcasters(steps).sourcesOf('OrderCreated')).toEqual([])
    expect(upcasters(steps).sourcesOf('OrderPlaced').sort()).toEqual(['OrderCreated', 'OrderMade', 'OrderPlaced'])
  })

  test('the path shows every shape on the way', () => {
    expect(registry.path('OrderCreated', 1)).toEqual([
      { type: 'OrderCreated', schemaVersion: 1 },
      { type: 'OrderPlaced', schemaVersion: 1 },
      { type: 'OrderPlaced', schemaVersion: 2 },
      { type: 'OrderPlaced', schemaVersion: 3 },
    ])
    expect(registry.path('OrderPaid', 1)).toEqual([{ type: 'OrderPaid', schemaVersion: 1 }])
  })

  test('the description lists the steps as they were given', () => {
    expect(registry.describe()).toEqual([
      { type: 'OrderCreated', from: 1, toType: 'OrderPlaced', to: 1 },
      { type: 'OrderPlaced', from: 1, toType: 'OrderPlaced', to: 2 },
      { type: 'OrderPlaced', from: 2, toType: 'OrderPlaced', to: 3 },
    ])
  })
})

function throwIt(error: Error): never {
  throw error
}
