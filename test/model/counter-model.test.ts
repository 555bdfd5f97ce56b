/** The ordering protocol with a counter, in every order of its steps. */
import { describe, expect, test } from 'vitest'
import { describeExample, explore } from './checker.ts'
import { type CounterBounds, type CounterMutant, counterModel, counterMutants } from './counter-model.ts'

const threeWriters: CounterBounds = {
  writers: [
    { appends: 2, savepoints: 1 },
    { appends: 2, savepoints: 1 },
    { appends: 1, savepoints: 1 },
  ],
}
const twoWriters: CounterBounds = {
  writers: [
    { appends: 2, savepoints: 1 },
    { appends: 1, savepoints: 0 },
  ],
}

test('three writers with five appends and savepoints: no reader misses an event', () => {
  const { states, counterExample } = explore(counterModel(threeWriters))

  expect(counterExample && describeExample(counterExample)).toBeUndefined()
  expect(states).toBe(2_209)
})

describe('the relatives of the protocol lose events, or give one position twice:', () => {
  const missed = 'the reader has passed position 1, and never got its event'
  const twice = 'two events have position 1'
  const drawn = 'draws a position and inserts its event'
  const committed = 'writer 2 commits: its events and the counter are visible'
  const ends: Record<CounterMutant, readonly [lastStep: string, reason: string]> = {
    'drawn in a transaction of its own': [committed, missed],
    'events are read before the counter': ['the reader reads the counter', missed],
    'the row is unlocked before the commit': [committed, missed],
    'the counter and the events are committed one after the other': [
      'writer 2 has committed the counter, and now its events',
      missed,
    ],
    'readers count what is drawn and not committed': [committed, missed],
    'the row is not locked': [`writer 1 ${drawn}`, twice],
    'a rollback to a savepoint unlocks what was drawn before it': [`writer 2 ${drawn}`, twice],
  }

  for (const mutant of counterMutants)
    test(`${mutant}, and then "${ends[mutant][0]}": ${ends[mutant][1]}`, () => {
      const { counterExample } = explore(counterModel(twoWriters, mutant))

      expect([counterExample?.steps.at(-1), counterExample?.reason]).toEqual(ends[mutant])
    })
})
