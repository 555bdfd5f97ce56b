/** The ordering protocol with a counter, in every order of its steps. */
import { describe, expect, test } from 'vitest'
import { describeExample, explore } from './checker.ts'
import { type CounterBounds, counterModel, counterMutants } from './counter-model.ts'

const threeWriters: CounterBounds = {
  writers: [
    { appends: 2, savepoints: 1 },
    { appends: 2, savepoints: 1 },
    { appends: 1, savepoints: 1 },
  ],
}
const twoWriters: CounterBounds = {
  writers: [
    { appends: 2, savepoints: 0 },
    { appends: 1, savepoints: 0 },
  ],
}

test('three writers with five appends and savepoints: no reader misses an event', () => {
  const { states, counterExample } = explore(counterModel(threeWriters))

  expect(counterExample && describeExample(counterExample)).toBeUndefined()
  expect(states).toBe(2_209)
})

describe('the relatives of the protocol lose events:', () => {
  for (const mutant of counterMutants)
    test(mutant, () => {
      const { counterExample } = explore(counterModel(twoWriters, mutant))

      expect(counterExample?.reason).toMatch(/^the reader has passed position \d, and never got its event$/)
    })
})
