import fc from 'fast-check'
import { expect, test } from 'vitest'
import { assign } from '../../src/consumers/runners/balance.ts'

const names = (count: number): string[] => Array.from({ length: count }, (_, n) => `c${n}`)

test('no runner gets more than one above the even share, and each consumer goes to a runner that can run it', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 6 }),
      fc.array(fc.option(fc.integer({ min: 0, max: 7 }), { nil: undefined }), { maxLength: 30 }),
      (hosts, holders) => {
        const all = new Set(names(holders.length))
        const members = Array.from({ length: hosts }, (_, n) => ({ owner: `h${n}`, consumers: all }))
        const held = new Map(holders.map((holder, n) => [`c${n}`, holder === undefined ? undefined : `h${holder}`]))

        const assigned = assign(held, members)

        const loads = members.map(({ owner }) => [...assigned.values()].filter(each => each === owner).length)
        expect(assigned.size).toBe(holders.length)
        expect(Math.max(...loads) - Math.min(...loads)).toBeLessThanOrEqual(1)
      },
    ),
  )
})

test('an even distribution does not change', () => {
  const all = new Set(names(6))
  const members = ['h1', 'h2', 'h3'].map(owner => ({ owner, consumers: all }))
  const held = new Map(names(6).map((name, n) => [name, `h${(n % 3) + 1}`]))

  expect(assign(held, members)).toEqual(held)
})

test('a consumer that only one runner can run goes there, however many that runner has', () => {
  const members = [
    { owner: 'h1', consumers: new Set(['a', 'b', 'c']) },
    { owner: 'h2', consumers: new Set(['c']) },
  ]

  const assigned = assign(
    new Map([
      ['a', undefined],
      ['b', undefined],
      ['c', 'h1'],
      ['d', undefined],
    ]),
    members,
  )

  expect(Object.fromEntries(assigned)).toEqual({ a: 'h1', b: 'h1', c: 'h2' })
})
