/** The checker itself, on puzzles whose answers are known. */
import { expect, test } from 'vitest'
import { describeExample, explore, type Model } from './checker.ts'

/** Two jugs of three and five litres. */
const jugs = (forbidden: number): Model<{ small: number; large: number }> => ({
  initial: { small: 0, large: 0 },
  actions: [
    { name: 'fill the small jug', can: () => true, run: state => Object.assign(state, { small: 3 }) },
    { name: 'fill the large jug', can: () => true, run: state => Object.assign(state, { large: 5 }) },
    { name: 'empty the small jug', can: () => true, run: state => Object.assign(state, { small: 0 }) },
    { name: 'empty the large jug', can: () => true, run: state => Object.assign(state, { large: 0 }) },
    { name: 'pour the small jug into the large one', can: () => true, run: state => pour(state, 'small', 'large') },
    { name: 'pour the large jug into the small one', can: () => true, run: state => pour(state, 'large', 'small') },
  ],
  invariant: ({ large }) => (large === forbidden ? `there are ${forbidden} litres` : undefined),
})

function pour(jug: { small: number; large: number }, from: 'small' | 'large', into: 'small' | 'large'): void {
  const poured = Math.min(jug[from], (into === 'small' ? 3 : 5) - jug[into])
  jug[from] -= poured
  jug[into] += poured
}

/** Each of two clerks locks both drawers, in the order given, and unlocks them. */
function clerks(orders: readonly (readonly [number, number])[]): Model<{ at: number[]; holder: (number | null)[] }> {
  return {
    initial: { at: orders.map(() => 0), holder: [null, null] },
    actions: orders.flatMap((order, clerk) => [
      ...order.map((drawer, step) => ({
        name: `clerk ${clerk + 1} locks drawer ${drawer + 1}`,
        can: ({ at, holder }: { at: number[]; holder: (number | null)[] }) =>
          at[clerk] === step && holder[drawer] === null,
        run: ({ at, holder }: { at: number[]; holder: (number | null)[] }) => {
          holder[drawer] = clerk
          at[clerk]!++
        },
      })),
      {
        name: `clerk ${clerk + 1} unlocks both`,
        can: ({ at }: { at: number[] }) => at[clerk] === 2,
        run: (state: { at: number[]; holder: (number | null)[] }) => {
          state.at[clerk] = 3
          state.holder = state.holder.map(holder => (holder === clerk ? null : holder))
        },
      },
    ]),
    invariant: () => undefined,
    isDone: ({ at }) => at.every(step => step === 3),
  }
}

test('all states are reached, and without a forbidden state there is no counter-example', () => {
  expect(explore(jugs(6))).toEqual({ states: 16, counterExample: undefined })
})

test('the counter-example is the shortest way to a forbidden state', () => {
  const { counterExample } = explore(jugs(4))

  expect(describeExample(counterExample!)).toBe(`\
  1. fill the large jug
  2. pour the large jug into the small one
  3. empty the small jug
  4. pour the large jug into the small one
  5. fill the large jug
  6. pour the large jug into the small one
     there are 4 litres`)
})

test('a state from which the work can never be completed is a counter-example', () => {
  const sameOrder = explore(clerks([[0, 1], [0, 1]])) // biome-ignore format: one line
  const otherOrder = explore(clerks([[0, 1], [1, 0]])) // biome-ignore format: one line

  expect(sameOrder.counterExample).toBeUndefined()
  expect(otherOrder.counterExample?.steps).toEqual(['clerk 1 locks drawer 1', 'clerk 2 locks drawer 2'])
})

test('equal processes are explored once, and keep their names in a counter-example', () => {
  const model = (isReduced: boolean): Model<{ counts: number[] }> => ({
    initial: { counts: [0, 0, 0] },
    actions: [0, 1, 2].map(at => ({
      name: `counter ${at + 1} goes up`,
      can: ({ counts }) => counts[at]! < 3,
      run: ({ counts }) => void counts[at]!++,
    })),
    invariant: ({ counts }) => ([...counts].sort().join() === '0,1,3' ? 'one has 3, one has 1' : undefined),
    ...(isReduced
      ? {
          canonical: state => {
            state.counts.sort()
            return state
          },
        }
      : {}),
  })

  const [all, reduced] = [explore(model(false)), explore(model(true))]

  expect(reduced.states).toBeLessThan(all.states)
  expect(new Set(reduced.counterExample!.steps).size).toBe(2)
  expect(reduced.counterExample!.steps).toHaveLength(4)
})

test('a state that is not plain data is refused', () => {
  const model = { initial: { at: 0.5 }, actions: [], invariant: () => undefined }

  expect(() => explore(model)).toThrow('A state has the number 0.5.')
})
