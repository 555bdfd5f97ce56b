import { expect, test } from 'vitest'
import { InvalidName, isRillflowError } from '../../src/core/errors.ts'
import { category, checkName, type NameKind } from '../../src/core/name.ts'

test('a name is returned unchanged: no trimming, no folding', () => {
  for (const name of ['order-42', ' Order ', 'bestellung-ä', '😀', 'a'.repeat(255), 'ä'.repeat(127)]) {
    expect(checkName('Stream', name)).toBe(name)
  }
})

test.each<[NameKind, unknown, string]>([
  ['Stream', '', 'Stream "" is empty.'],
  ['Event type', 'a'.repeat(256), `Event type "${'a'.repeat(80)}" is longer than 255 bytes.`],
  ['Alias', 'ä'.repeat(128), `Alias "${'ä'.repeat(80)}" is longer than 255 bytes.`],
  ['Idempotency key', 'order\0', 'Idempotency key "order\\u0000" contains a NUL character.'],
  ['User id', 'ada\ud83d', 'User id "ada\\ud83d" contains half of a character (an unpaired surrogate).'],
  ['Correlation id', 42, 'Correlation id "42" is not a string but a number.'],
  ['Causation id', { id: 1 }, 'Causation id "" is not a string but an object.'],
  ['Stream', undefined, 'Stream "undefined" is not a string but undefined.'],
  ['Stream', null, 'Stream "" is not a string but null.'],
])('a wrong %s is refused with a sentence: %#', (what, name, message) => {
  const check = () => checkName(what, name)

  expect(check).toThrow(InvalidName)
  expect(check).toThrow(message)
})

test('the error carries the invalid name as data', () => {
  try {
    checkName('Stream', '')
  } catch (error) {
    expect(isRillflowError(error, 'invalid_name')).toBe(true)
    expect(error).toMatchObject({ what: 'Stream', reason: 'is empty', retryable: false })
  }
  expect.assertions(2)
})

test.each([
  ['order-42', 'order'],
  ['order-line-42', 'order'],
  ['order-', 'order'],
  ['orders', 'orders'],
  ['order-0190b2f0-6a1c-7def-8123-456789abcdef', 'order'],
  ['0190b2f0-6a1c-7def-8123-456789abcdef', undefined],
  ['0190B2F0-6A1C-7DEF-8123-456789ABCDEF', undefined],
  ['0190b2f0-6a1c-7def-8123-456789abcdeX', '0190b2f0'],
  ['-42', undefined],
  ['-', undefined],
])('the category of %s is %s', (stream, expected) => {
  expect(category(stream)).toBe(expected)
})
