import { describe, expect, test, vi } from 'vitest'
import { InvalidName, InvalidOption } from '../../src/core/errors.ts'
import type { RecordedEvent } from '../../src/events/definition.ts'
import { UpcasterCycle, UpcasterFailed } from '../../src/events/errors.ts'
import { toRecordedEvent } from '../../src/events/event.ts'
import { type Upcaster, upcaster, upcasters } from '../../src/events/read/upcast.ts'

const id = '0190b2f0-6a1c-7def-8123-456789abcdef'

function stored(type: string, schemaVersion: number, data: unknown = { total: 99 }): RecordedEvent {
  return toRecordedEvent(7, 'order-42', 1, id, type, schemaVersion, data, {}, id, null, null, new Date(0))
}

const withCurrency = upcaster('OrderPlaced', { from: 1, to: 2 }, (data: object) => ({ ...data, currency: 'EUR' }))
const inCents = upcaster('OrderPlaced', { from: 2, to: 3 }, ({ total, ...rest }: { total: number }) => ({
  ...rest,
  cents: total * 100,
}))
const renamed = upcaster('OrderCreated', { from: 1, toType: 'OrderPlaced', to: 1 }, ({ sum }: { sum: number }) => ({
  total: sum,
}))

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
      upcaster('OrderCreated', { from: 1, toType: 'OrderPlaced', to: 1 }, note),
      upcaster('OrderPlaced', { from: 1, to: 2 }, note),
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
    const lookedUp = upcaster('OrderPlaced', { from: 2, to: 3 }, async (data: object) => ({ ...data, country: 'AT' }))
    const rounded = upcaster('OrderPlaced', { from: 3, to: 4 }, (data: object) => ({ ...data, rounded: true }))

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
    ['throws', upcaster('OrderPlaced', { from: 2, to: 3 }, () => throwIt(broken))],
    ['rejects', upcaster('OrderPlaced', { from: 2, to: 3 }, () => Promise.reject(broken))],
  ]

  test.each(failing)('and %s is an UpcasterFailed with the step, the event and the cause', async (_, step) => {
    const read = async () => upcasters([withCurrency, step]).apply(stored('OrderPlaced', 1))

    await expect(read).rejects.toThrow(UpcasterFailed)
    await expect(read).rejects.toMatchObject({ type: 'OrderPlaced', schemaVersion: 2, eventId: id, cause: broken })
  })

  test('after an asynchronous one is an UpcasterFailed of its own step, once', async () => {
    const waits = upcaster('OrderPlaced', { from: 1, to: 2 }, async data => data)
    const fails = upcaster('OrderPlaced', { from: 2, to: 3 }, () => throwIt(broken))

    const read = async () => upcasters([waits, fails]).apply(stored('OrderPlaced', 1))

    await expect(read).rejects.toMatchObject({ code: 'upcaster_failed', schemaVersion: 2, cause: broken })
  })

  test('because it forgot to return does not pass on an event without data', () => {
    const forgetful = upcaster('OrderPlaced', { from: 1, to: 2 }, () => {})

    expect(() => upcasters([forgetful]).apply(stored('OrderPlaced', 1))).toThrow(UpcasterFailed)
  })
})

describe('RB-58 the writer states the version', () => {
  test('RB-58 an event written in the current version is not changed by any step', () => {
    const change = vi.fn(data => data)
    const registry = upcasters([
      upcaster('OrderPlaced', { from: 1, to: 2 }, change),
      upcaster('OrderPlaced', { from: 2, to: 4 }, change),
      upcaster('OrderPaid', { from: '*', to: 5 }, change),
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
      upcaster('OrderPaid', { from: '*', to: 5 }, data => data),
      upcaster('OrderBilled', { from: 1, toType: 'OrderInvoiced', to: 3 }, data => data),
    ])

    expect(registry.currentVersion('OrderPlaced')).toBe(3)
    expect(registry.currentVersion('OrderPaid')).toBe(5)
    expect(registry.currentVersion('OrderInvoiced')).toBe(3)
    expect(registry.currentVersion('OrderCreated')).toBe(1)
    expect(registry.currentVersion('OrderShipped')).toBe(1)
  })

  test('RB-58 a step back to a lower version moves the current version with it', () => {
    const registry = upcasters([
      upcaster('OrderPlaced', { from: 1, to: 3 }, data => data),
      upcaster('OrderPlaced', { from: 3, to: 2 }, data => data),
    ])

    expect(registry.currentVersion('OrderPlaced')).toBe(2)
    expect(registry.path('OrderPlaced', 2)).toHaveLength(1)
  })
})

describe('RB-59 the wildcard', () => {
  test('RB-59 a wildcard that stays in its type applies once, to the versions below its target', () => {
    const change = vi.fn((data: object) => ({ ...data, currency: 'EUR' }))
    const registry = upcasters([upcaster('OrderPlaced', { from: '*', to: 4 }, change)])

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
    const registry = upcasters([upcaster('OrderCreated', { from: '*', toType: 'OrderPlaced', to: 1 }, data => data)])

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
      upcaster('OrderPlaced', { from: '*', to: 5 }, step('any')),
      upcaster('OrderPlaced', { from: 1, to: 2 }, step('first')),
      upcaster('OrderPlaced', { from: 5, to: 6 }, step('last')),
    ])

    expect(registry.apply(stored('OrderPlaced', 1))).toMatchObject({ schemaVersion: 6 })
    expect(taken).toEqual(['first', 'any', 'last'])
  })

  test('RB-59 a wildcard that is led back below its target is a cycle, found when it is registered', () => {
    const register = () =>
      upcasters([
        upcaster('OrderPlaced', { from: '*', to: 3 }, data => data),
        upcaster('OrderPlaced', { from: 3, to: 1 }, data => data),
      ])

    expect(register).toThrow(UpcasterCycle)
  })
})

describe('invalid steps are refused when they are registered', () => {
  const same = (data: unknown) => data

  test.each<[string, Upcaster[], string[]]>([
    ['to itself', [upcaster('OrderPlaced', { from: 2, to: 2 }, same)], ['OrderPlaced v2', 'OrderPlaced v2']],
    [
      'there and back',
      [upcaster('OrderPlaced', { from: 1, to: 2 }, same), upcaster('OrderPlaced', { from: 2, to: 1 }, same)],
      ['OrderPlaced v2', 'OrderPlaced v1', 'OrderPlaced v2'],
    ],
    [
      'of two wildcards',
      [
        upcaster('OrderCreated', { from: '*', toType: 'OrderPlaced', to: 1 }, same),
        upcaster('OrderPlaced', { from: '*', toType: 'OrderCreated', to: 1 }, same),
      ],
      ['OrderPlaced v1', 'OrderCreated v1', 'OrderPlaced v1'],
    ],
    [
      'reached from outside',
      [
        upcaster('OrderMade', { from: 1, toType: 'OrderPlaced', to: 1 }, same),
        upcaster('OrderPlaced', { from: 1, to: 2 }, same),
        upcaster('OrderPlaced', { from: 2, to: 1 }, same),
      ],
      ['OrderPlaced v1', 'OrderPlaced v2', 'OrderPlaced v1'],
    ],
  ])('a cycle %s, with its path', (_, steps, path) => {
    expect(() => upcasters(steps)).toThrow(expect.objectContaining({ code: 'upcaster_cycle', path }))
    expect(() => upcasters(steps)).toThrow(path.join(' → '))
  })

  test('two steps from the same version of a type', () => {
    const twice = [withCurrency, upcaster('OrderPlaced', { from: 1, to: 3 }, same)]

    expect(() => upcasters(twice)).toThrow(InvalidOption)
    expect(() => upcasters(twice)).toThrow(/two upcasters from OrderPlaced version 1/)
  })

  test('two wildcards of a type', () => {
    const any = upcaster('OrderPlaced', { from: '*', to: 3 }, same)

    expect(() => upcasters([any, any])).toThrow(InvalidOption)
  })

  test.each([0, -1, 1.5, Number.NaN, 2 ** 31])('the version %d', version => {
    expect(() => upcaster('OrderPlaced', { from: version, to: 2 }, same)).toThrow(InvalidOption)
    expect(() => upcaster('OrderPlaced', { from: 1, to: version }, same)).toThrow(InvalidOption)
  })

  test('a type without a name', () => {
    expect(() => upcaster('', { from: 1, to: 2 }, same)).toThrow(InvalidName)
    expect(() => upcaster('OrderPlaced', { from: 1, toType: '', to: 2 }, same)).toThrow(InvalidName)
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
    const always = upcasters([upcaster('OrderCreated', { from: '*', ...step }, data => data)])

    expect(always.sourcesOf('OrderCreated')).toEqual([])
    expect(always.sourcesOf('OrderPlaced').sort()).toEqual(['OrderCreated', 'OrderPlaced'])
    expect(registry.sourcesOf('OrderCreated')).toEqual(['OrderCreated'])
  })

  test('a type only passed through on the way is neither a source nor a result', () => {
    const steps = [
      upcaster('OrderMade', { from: '*', toType: 'OrderCreated', to: 1 }, data => data),
      upcaster('OrderCreated', { from: '*', toType: 'OrderPlaced', to: 1 }, data => data),
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
