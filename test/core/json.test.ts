import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { RillflowError } from '../../src/core/errors.ts'
import { InvalidEvent } from '../../src/core/errors.ts'
import { canonicalJson, encodeJson, findFault } from '../../src/core/json.ts'

const options = { what: 'OrderPlaced', root: 'data', maxBytes: 1024 * 1024 }
const encode = (value: unknown) => encodeJson(value, options)

function refusal(value: unknown, maxBytes = options.maxBytes): RillflowError & { path?: string; reason?: string } {
  try {
    encodeJson(value, { ...options, maxBytes })
  } catch (error) {
    expect(error).toBeInstanceOf(InvalidEvent)
    return error as RillflowError
  }
  return expect.fail('the value was accepted')
}

describe('values that JSON can hold', () => {
  test('an order is written exactly as JSON.stringify writes it, with its size in bytes', () => {
    const order = { total: 9.5, paid: true, note: null, customer: 'Zoë', lines: [{ sku: 'tea', count: 2 }], tags: [] }

    const { text, bytes } = encode(order)

    expect(text).toBe(JSON.stringify(order))
    expect(bytes).toBe(Buffer.byteLength(text))
  })

  test('an undefined property is dropped, a Date becomes ISO text, toJSON is called', () => {
    const price = { toJSON: (key: string) => ({ cents: 950, key }) }
    const order = {
      coupon: undefined,
      placedAt: new Date('2026-03-01T09:00:00Z'),
      price,
      none: { toJSON: () => undefined },
    }

    expect(encode(order).text).toBe('{"placedAt":"2026-03-01T09:00:00.000Z","price":{"cents":950,"key":"price"}}')
  })

  test('instances, boxed values, objects without prototype and inherited properties are treated as JSON does', () => {
    class Money {
      cents = 950
    }
    const inherited = Object.create({ discount: () => 1 }, { total: { value: 5, enumerable: true } })
    const order = {
      price: new Money(),
      bare: Object.create(null),
      boxed: [Object('tea'), Object(2), Object(true)],
      inherited,
    }

    expect(encode(order).text).toBe(JSON.stringify(order))
    expect(JSON.parse(encode(order).text).inherited).toEqual({ total: 5 })
  })

  test('an object may occur twice, as long as it does not contain itself', () => {
    const address = { city: 'Graz' }
    const order = { billing: address, shipping: address, all: [address, address] }

    expect(encode(order).text).toBe(JSON.stringify(order))
  })

  test('200 levels are accepted', () => {
    expect(encode(nested(200)).text).toBe(JSON.stringify(nested(200)))
  })

  test('valid escapes are accepted: a tab stop, an ESC, a backslash before u0000, an emoji', () => {
    const order = { note: '\t\u001b[1m', path: '\\u0000', smile: '😀', key: '\\ud800' }

    expect(encode(order).text).toBe(JSON.stringify(order))
  })

  test('null, text, numbers and lists are valid data', () => {
    for (const value of [null, '', 'tea', 0, -1.5, false, [], [[]], {}]) {
      expect(encode(value).text).toBe(JSON.stringify(value))
    }
  })
})

describe('values that JSON cannot hold are refused with their path', () => {
  const cycle: Record<string, unknown> = { total: 1 }
  cycle.lines = [{ order: cycle }]

  test.each<[string, unknown, string, RegExp]>([
    ['no data', undefined, 'data', /undefined/],
    ['undefined in a list', { items: ['tea', undefined] }, 'data.items[1]', /undefined/],
    ['a hole in a list', { items: new Array(1) }, 'data.items[0]', /undefined/],
    ['undefined from toJSON in a list', { items: [{ toJSON() {} }] }, 'data.items[0]', /undefined/],
    ['NaN', { items: [1, 2, 3, { price: Number.NaN }] }, 'data.items[3].price', /NaN/],
    ['Infinity', { total: -Infinity }, 'data.total', /-Infinity/],
    ['a boxed NaN', { total: Object(Number.NaN) }, 'data.total', /NaN/],
    ['a function', { onPaid: () => {} }, 'data.onPaid', /function/],
    [
      'a method of a class that is a field',
      {
        line: new (class {
          price = (): number => 1
        })(),
      },
      'data.line.price',
      /function/,
    ],
    ['a symbol', { status: Symbol('paid') }, 'data.status', /symbol/],
    ['a BigInt', { total: 10n }, 'data.total', /BigInt/],
    ['a boxed BigInt', { total: Object(10n) }, 'data.total', /BigInt/],
    ['an invalid Date', { placedAt: new Date(Number.NaN) }, 'data.placedAt', /invalid Date/],
    ['a cycle', cycle, 'data.lines[0].order', /contains it/],
    ['NUL in text', { note: 'a\0b' }, 'data.note', /NUL/],
    ['NUL in a key', { 'a\0b': 1 }, 'data["a\\u0000b"]', /name that contains a NUL/],
    ['half a character', { note: ['\ud83d'] }, 'data.note[0]', /surrogate/],
    ['half a character in a key', { '\udc00': 1 }, 'data["\\udc00"]', /surrogate/],
    ['a Map', { stock: new Map([['tea', 1]]) }, 'data.stock', /kind Map.*\{\}/],
    ['a Set', { tags: new Set(['vip']) }, 'data.tags', /kind Set/],
    ['a promise that was not awaited', { total: Promise.resolve(1) }, 'data.total', /kind Promise/],
    [
      'a fault inside the result of toJSON',
      { price: { toJSON: () => ({ cents: Number.NaN }) } },
      'data.price.cents',
      /NaN/,
    ],
    ['a fault under an unusual key', { 'unit price': Number.NaN }, 'data["unit price"]', /NaN/],
  ])('%s', (_, value, path, reason) => {
    expect(refusal(value)).toMatchObject({ code: 'invalid_event', type: 'OrderPlaced', path })
    expect(refusal(value).reason).toMatch(reason)
  })

  test('more than 200 levels', () => {
    const error = refusal(nested(201))

    expect(error.path).toBe(`data${'.in'.repeat(200)}`)
    expect(error.reason).toMatch(/200 levels/)
  })

  test('a million levels, without running out of stack', () => {
    expect(refusal(nested(1_000_000)).reason).toMatch(/200 levels/)
  })

  test('more bytes than allowed, counted in UTF-8', () => {
    expect(encodeJson('äöü', { ...options, maxBytes: 8 }).bytes).toBe(8)
    expect(refusal('äöü', 7)).toMatchObject({ path: 'data', reason: 'takes more than 7 bytes as JSON' })
    expect(refusal({ note: 'x'.repeat(2000) }, 1000).path).toBe('data')
  })

  test('a small object that would unfold to more text than there are atoms, without delay', () => {
    let order: unknown = 'tea'
    for (let i = 0; i < 190; i++) order = { left: order, right: order }

    expect(refusal(order).reason).toMatch(/more than 1048576 bytes/)
  })

  test('a value that throws when it is read, with its error as the cause', () => {
    const cause = new Error('the price list is closed')
    const error = refusal({
      price: {
        toJSON: () => {
          throw cause
        },
      },
    })

    expect(error.cause).toBe(cause)
    expect(error.message).toContain('the price list is closed')
  })

  test('the message is a sentence with event, place and reason', () => {
    expect(refusal({ items: [{ price: Number.NaN }] }).message).toBe(
      'Event OrderPlaced is not valid: data.items[0].price is NaN, which JSON cannot hold. Nothing was sent.',
    )
  })
})

describe('for any value', () => {
  const anything = fc.anything({
    withDate: true,
    withMap: true,
    withSet: true,
    withBigInt: true,
    withSparseArray: true,
    withNullPrototype: true,
    withBoxedValues: true,
    withTypedArray: true,
    withUnicodeString: true,
    maxDepth: 4,
  })

  test('accepted values are those that JSON.stringify writes, and read back equal', () => {
    fc.assert(
      fc.property(anything, value => {
        const { text, bytes } = attempt(value) ?? { text: undefined, bytes: 0 }
        fc.pre(text !== undefined)
        expect(text).toBe(JSON.stringify(value))
        // A number with an exponent counts as the database writes it.
        if (!/\de[+-]/.test(text!)) expect(bytes).toBe(Buffer.byteLength(text!))
        expect(JSON.stringify(JSON.parse(text!))).toBe(text)
      }),
    )
  })

  test('the quick check accepts nothing that the careful check refuses', () => {
    fc.assert(
      fc.property(anything, value => {
        const fault = findFault(value, 200, options.maxBytes)
        expect(attempt(value) === undefined).toBe(fault !== undefined)
      }),
      { numRuns: 1000 },
    )
  })

  test('JSON values are returned equal', () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), value => {
        const encoded = attempt(value)
        fc.pre(encoded !== undefined)
        expect(JSON.parse(encoded!.text)).toEqual(JSON.parse(JSON.stringify(value)))
      }),
    )
  })
})

describe('the canonical text', () => {
  test('does not depend on the order of keys', () => {
    expect(canonicalJson({ total: 1, lines: [{ sku: 'tea', count: 2 }], 10: 'b', 9: 'a' })).toBe(
      '{"10":"b","9":"a","lines":[{"count":2,"sku":"tea"}],"total":1}',
    )
  })

  test('equals that of the value as stored and read back', () => {
    const order = { placedAt: new Date(0), coupon: undefined, price: { toJSON: () => ({ b: 1, a: 2 }) } }

    expect(canonicalJson(order)).toBe(canonicalJson(JSON.parse(encode(order).text)))
  })

  test('preserves the content of any JSON value', () => {
    fc.assert(
      fc.property(fc.jsonValue(), value => {
        expect(JSON.parse(canonicalJson(value))).toEqual(JSON.parse(JSON.stringify(value)))
      }),
    )
  })
})

describe('the size', () => {
  test.each([
    [1e308, 309],
    [-1e308, 310],
    [1.2345e21, 22],
    [1e-7, 9],
    [-1.5e-7, 11],
    [5e-324, 326],
    [0, 1],
    [123_456_789, 9],
  ])('of %d is that of the number as the database writes it', (number, bytes) => {
    expect(encode(number).bytes).toBe(bytes)
  })

  test('of many such numbers is refused, although their JSON is short', () => {
    const weights = Array.from({ length: 4_000 }, () => 1e308)

    expect(() => encodeJson({ weights }, { what: 'OrderPlaced', root: 'data', maxBytes: 1024 * 1024 })).toThrow(
      'data takes more than 1048576 bytes as JSON',
    )
  })
})

function nested(levels: number): unknown {
  let value: unknown = 1
  for (let i = 0; i < levels; i++) value = { in: value }
  return value
}

function attempt(value: unknown): { text: string; bytes: number } | undefined {
  try {
    return encode(value)
  } catch (error) {
    expect(error).toBeInstanceOf(InvalidEvent)
    return undefined
  }
}
