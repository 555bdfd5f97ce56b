/** Claims, rescues and completions of an ordered lane, in every order of their steps. */
import { describe, expect, test } from 'vitest'
import { describeExample, explore } from './checker.ts'
import { type ClaimBounds, type ClaimMutant, claimModel, claimMutants } from './claim-model.ts'

const quiet: ClaimBounds = { executions: 2, deaths: 0, retries: 0, failures: 0, resends: 0, crashes: 0 }

const runs: Record<string, { bounds: ClaimBounds; states: number }> = {
  'three executions, two workers of which one dies': { bounds: { ...quiet, executions: 3, deaths: 1 }, states: 44_622 },
  'a worker that dies, and a lane that is parked': { bounds: { ...quiet, deaths: 1, failures: 1 }, states: 64_549 },
  'an attempt that is tried again': { bounds: { ...quiet, retries: 1 }, states: 44_479 },
  'a worker that dies, and an outcome that comes late': { bounds: { ...quiet, deaths: 1, resends: 1 }, states: 38_594 },
  'a crash of the server': { bounds: { ...quiet, crashes: 1 }, states: 32_752 },
}

for (const [what, { bounds, states }] of Object.entries(runs))
  test(`${what}: each execution of the lane counts once and in order`, () => {
    const explored = explore(claimModel(bounds))

    expect(explored.counterExample && describeExample(explored.counterExample)).toBeUndefined()
    expect(explored.states).toBe(states)
  })

describe('the relatives of the protocol break the lane, or come to a halt:', () => {
  const stored = 'the outcome of worker 1 is stored or refused'
  const released = 'worker 2 releases what worker 1 had'
  const takenOver = 'an outcome counts although another worker has taken over'
  const orphaned = 'a worker has executions, and no other worker would ever look for them'
  const stuck = 'from here on the work can never be completed'
  const ends: Record<ClaimMutant, readonly [lastStep: string, reason: string]> = {
    'an outcome counts under any fence': [stored, takenOver],
    'the effects are committed before the completion': [
      'the handler of worker 2 returns',
      'the effects of an execution count twice',
    ],
    'a claim does not look at the row of its worker': [released, orphaned],
    'a rescue looks once': [released, orphaned],
    'what is held behind a lost execution stays held': ['worker 1 claims, and the answer is lost', stuck],
    'a rescued execution gives up its place in the lane': ['worker 2 claims', 'two executions of the lane run at once'],
    'an execution that is tried again gives up its place': [
      stored,
      'executions of the lane were completed out of order',
    ],
    'the lane is parked after the completion': [stored, 'the lane goes on although the one before has failed'],
    'the fence is drawn in the claim': [stored, takenOver],
    'a lost answer to a claim is not looked for': ['worker 2 dies', stuck],
  }
  const boundsOf: Partial<Record<ClaimMutant, ClaimBounds>> = {
    'an outcome counts under any fence': { ...quiet, retries: 1 },
    'an execution that is tried again gives up its place': { ...quiet, retries: 1 },
    'the lane is parked after the completion': { ...quiet, failures: 1 },
    'the fence is drawn in the claim': { ...quiet, crashes: 1 },
  }

  for (const mutant of claimMutants)
    test(`${mutant}, and then "${ends[mutant][0]}": ${ends[mutant][1]}`, () => {
      const { counterExample } = explore(claimModel(boundsOf[mutant] ?? { ...quiet, deaths: 1 }, mutant))

      expect([counterExample?.steps.at(-1), counterExample?.reason]).toEqual(ends[mutant])
    })
})
