import fc from 'fast-check'
import { expect, test } from 'vitest'
import { canonicalUuid, isUuid, uuidv7Ids } from '../../src/core/id.ts'
import { manualClock } from './manual-clock.ts'

const version7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

test('an id is a UUIDv7 that carries the millisecond it was made in', () => {
  const placedAt = Date.parse('2026-03-01T09:00:00.123Z')
  const id = uuidv7Ids({ clock: manualClock(placedAt) }).next()

  expect(id).toMatch(version7)
  expect(Number.parseInt(id.replace('-', '').slice(0, 12), 16)).toBe(placedAt)
})

test('ids of one generator are unique and ascending, whatever the clock does', () => {
  const times = fc.array(fc.integer({ min: 0, max: 2 ** 48 - 2 ** 20 }), { minLength: 1, maxLength: 50 })
  fc.assert(
    fc.property(times, fc.integer({ min: 1, max: 50 }), (moments, each) => {
      const clock = manualClock()
      const ids = uuidv7Ids({ clock })

      const made = moments.flatMap(ms => {
        clock.set(ms)
        return Array.from({ length: each }, () => ids.next())
      })

      expect(made.every(id => version7.test(id))).toBe(true)
      expect(new Set(made).size).toBe(made.length)
      expect([...made].sort()).toEqual(made)
    }),
  )
})

test('200,000 orders in one stopped millisecond get ascending ids', () => {
  const ids = uuidv7Ids({ clock: manualClock(1) })
  let last = ''
  for (let i = 0; i < 200_000; i++) {
    const id = ids.next()
    if (id <= last) expect.fail(`${id} after ${last}`)
    last = id
  }
})

test('two generators that start in the same millisecond share no id', () => {
  const [here, there] = [uuidv7Ids({ clock: manualClock(1) }), uuidv7Ids({ clock: manualClock(1) })]
  const made = Array.from({ length: 1000 }, () => [here.next(), there.next()]).flat()

  expect(new Set(made).size).toBe(2000)
})

test('with given randomness and time the ids are the same in every run', () => {
  const make = () => uuidv7Ids({ clock: manualClock(1), random: block => block.fill(0xab) })
  const ids = make()

  expect([ids.next(), ids.next()]).toEqual([
    '00000000-0001-755d-97ab-abababababab',
    '00000000-0001-755d-97ac-abababababab',
  ])
  expect(make().next()).toBe('00000000-0001-755d-97ab-abababababab')
})

test('a clock before 1970 still gives well-formed, ascending ids', () => {
  const ids = uuidv7Ids({ clock: manualClock(-5) })
  const made = [ids.next(), ids.next()]

  expect(made.every(isUuid)).toBe(true)
  expect(made[0]! < made[1]!).toBe(true)
})

test('a UUID is recognised in either case, and nothing else is', () => {
  expect(isUuid('0190b2f0-6a1c-7def-8123-456789abcdef')).toBe(true)
  expect(isUuid('0190B2F0-6A1C-7DEF-8123-456789ABCDEF')).toBe(true)
  for (const text of ['', 'order-42', '0190b2f06a1c7def8123456789abcdef', '0190b2f0-6a1c-7def-8123-456789abcdeg']) {
    expect(isUuid(text)).toBe(false)
  }
})

test('the canonical form is the one the database returns', () => {
  expect(canonicalUuid('0190B2F0-6A1C-7DEF-8123-456789ABCDEF')).toBe('0190b2f0-6a1c-7def-8123-456789abcdef')
  expect(canonicalUuid('order-42')).toBeUndefined()
})
