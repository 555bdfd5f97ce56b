/** The closing of joins, in every order of its steps. */
import { describe, expect, test } from 'vitest'
import { describeExample, explore } from './checker.ts'
import { type JoinBounds, type JoinMutant, joinModel, joinMutants } from './join-model.ts'

const base = { size: 3, isNamed: false, isDeclared: true, hasTimeout: false, failures: 1, retries: 1, seconds: 1 }
const all: JoinBounds = { ...base, policy: 'all' }

const runs: readonly [what: string, bounds: JoinBounds, states: number][] = [
  ['of all', all, 8_675],
  ['of all, which only an event opens', { ...all, isDeclared: false }, 6_998],
  ['of all, which the fan-out names', { ...all, isNamed: true }, 8_675],
  ['of all, with a time limit', { ...all, hasTimeout: true }, 18_890],
  ['of all that settle', { ...base, policy: 'allSettled', failures: 2, retries: 2 }, 14_423],
  ['of the first', { ...base, policy: 'first' }, 8_478],
  ['of two of four', { ...base, policy: 'quorum', quorum: 2, size: 4, isDeclared: false }, 58_119],
]

for (const [what, bounds, states] of runs)
  test(`a join ${what}, with branches that fail and are tried again, runs once, with the events that count`, () => {
    const explored = explore(joinModel(bounds))

    expect(explored.counterExample && describeExample(explored.counterExample)).toBeUndefined()
    expect(explored.states).toBe(states)
  })

describe('the relatives of the protocol run the join twice, too early, or never:', () => {
  const stuck = 'from here on the work can never be completed'
  const stored = 'the dispatcher stores what follows, and commits'
  const ends: Record<JoinMutant, readonly [lastStep: string, reason: string]> = {
    'transactions do not hold the workflow': [stored, stuck],
    'the expiry does not look again': [
      'a worker locks the workflow, closes the join and commits',
      'the join runs twice',
    ],
    'branches that ended before the join was opened do not count': [
      'worker 1 locks the workflow: execution 2 ends without an event',
      stuck,
    ],
    'an event that comes late counts': [stored, 'the join runs twice'],
    'the end of a branch counts besides its event': [stored, 'the join runs although branches have not ended'],
    'what ends and what begins are not summed up': [
      'worker 1 stores what follows, and commits',
      'a branch counts as empty while its event is on its way',
    ],
    'a second event of a branch counts': [stored, 'the join runs although branches have not ended'],
  }

  for (const mutant of joinMutants)
    test(`${mutant}, and then "${ends[mutant][0]}": ${ends[mutant][1]}`, () => {
      const isTimed = mutant === 'the expiry does not look again'
      const bounds = { ...all, size: 2, isDeclared: isTimed, hasTimeout: isTimed }
      const { counterExample } = explore(joinModel(bounds, mutant))

      expect([counterExample?.steps.at(-1), counterExample?.reason]).toEqual(ends[mutant])
    })
})
