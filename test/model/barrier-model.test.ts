/** The barrier of inline projections, in every order of its steps. */
import { describe, expect, test } from 'vitest'
import { type BarrierBounds, type BarrierMutant, barrierModel, barrierMutants } from './barrier-model.ts'
import { describeExample, explore } from './checker.ts'

const plain = { isStrict: false, hasCode: true }
const strict = { isStrict: true, hasCode: true }
const outdated = { isStrict: false, hasCode: false }

const runs: readonly [what: string, bounds: BarrierBounds, states: number][] = [
  [
    'four appends, one in repeatable read and one by a process without the code, and two changes',
    { appends: [plain, plain, strict, outdated], changes: 2 },
    39_860,
  ],
  ['three appends, one in repeatable read, and three changes', { appends: [plain, plain, strict], changes: 3 }, 9_584],
]

for (const [what, bounds, states] of runs)
  test(`${what} of the lifecycle: each event is applied once`, () => {
    const explored = explore(barrierModel(bounds))

    expect(explored.counterExample && describeExample(explored.counterExample)).toBeUndefined()
    expect(explored.states).toBe(states)
  })

describe('the relatives of the protocol apply events twice, or never:', () => {
  const never = 'event 1 is never applied'
  const twice = 'event 1 is applied twice'
  const changed = 'the change commits'
  const saved = 'the runner saves its checkpoint and commits, or has lost its lease'
  const ends: Record<BarrierMutant, readonly [lastStep: string, reason: string]> = {
    'a change does not take the barrier': [changed, never],
    'an append lets go of its look': [changed, never],
    'the last events are read before the barrier': [changed, never],
    'an old snapshot is believed': ['append 2 commits', never],
    'an append without the code is let through': ['append 3 commits', never],
    'the consumer keeps its fence': [saved, twice],
    'a projection that is no longer inline begins at its old checkpoint': [saved, twice],
  }

  for (const mutant of barrierMutants)
    test(`${mutant}, and then "${ends[mutant][0]}": ${ends[mutant][1]}`, () => {
      const { counterExample } = explore(barrierModel({ appends: [plain, strict, outdated], changes: 2 }, mutant))

      expect([counterExample?.steps.at(-1), counterExample?.reason]).toEqual(ends[mutant])
    })
})
