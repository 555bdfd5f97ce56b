/** The ordering protocol, in every order of its steps. */
import { describe, expect, test } from 'vitest'
import { describeExample, explore } from './checker.ts'
import { type OrderingBounds, type OrderingMutant, orderingModel, orderingMutants } from './ordering-model.ts'

const threeWriters: OrderingBounds = {
  writers: [
    { appends: 2, savepoints: 0 },
    { appends: 1, savepoints: 1 },
    { appends: 1, savepoints: 0 },
  ],
}
const twoLongWriters: OrderingBounds = {
  writers: [
    { appends: 2, savepoints: 1 },
    { appends: 2, savepoints: 1 },
  ],
}

test('three writers with four appends, one with a savepoint: no reader misses an event', () => {
  const { states, counterExample } = explore(orderingModel(threeWriters))

  expect(counterExample && describeExample(counterExample)).toBeUndefined()
  expect(states).toBe(106_924)
})

test('two writers with two appends and a savepoint each: no reader misses an event', () => {
  const { states, counterExample } = explore(orderingModel(twoLongWriters))

  expect(counterExample && describeExample(counterExample)).toBeUndefined()
  expect(states).toBe(28_269)
})

describe('the relatives of the protocol lose events:', () => {
  const visible = 'commits: its events are visible'
  const lastSteps: Record<OrderingMutant, string> = {
    'nothing is announced': `writer 1 ${visible}`,
    'announced after drawing': `writer 1 ${visible}`,
    'announced in a transaction of its own': `writer 1 ${visible}`,
    'locks are read before the head': `writer 1 ${visible}`,
    'events are read from a snapshot older than the locks': 'the reader reads the events up to there',
    'the client remembers the announcement': `writer 1 ${visible}`,
    'the lock is given back before the commit': `writer 1 ${visible}`,
    'an unused sequence is read as used': `writer 1 ${visible}`,
    'the greatest bound counts': `writer 1 ${visible}`,
    'an answered append is taken across a hole': 'the reader takes the append at the next position, which was answered',
  }

  for (const mutant of orderingMutants)
    test(`${mutant}, and then "${lastSteps[mutant]}"`, () => {
      const { counterExample } = explore(orderingModel(twoLongWriters, mutant))

      expect(counterExample?.reason).toBe('the reader has passed position 1, and never got its event')
      expect(counterExample?.steps.at(-1)).toBe(lastSteps[mutant])
    })
})
