/** Lease, fence and checkpoint, in every order of their steps. */
import { describe, expect, test } from 'vitest'
import { describeExample, explore } from './checker.ts'
import { type LeaseMutant, leaseModel, leaseMutants } from './lease-model.ts'

test('three runners and a move of the checkpoint: each event up to the checkpoint is applied once', () => {
  const { states, counterExample } = explore(leaseModel({ runners: 3, events: 2, moves: 1 }))

  expect(counterExample && describeExample(counterExample)).toBeUndefined()
  expect(states).toBe(27_774)
})

test('two runners, three events and two moves: each event up to the checkpoint is applied once', () => {
  const { states, counterExample } = explore(leaseModel({ runners: 2, events: 3, moves: 2 }))

  expect(counterExample && describeExample(counterExample)).toBeUndefined()
  expect(states).toBe(10_292)
})

describe('the relatives of the protocol apply events twice, lose them, or come to a halt:', () => {
  const missed = 'the checkpoint is past event 1, which was not applied'
  const twice = 'event 1 was applied twice'
  const stuck = 'from here on the work can never be completed'
  const ends: Record<LeaseMutant, readonly [lastStep: string, reason: string]> = {
    'the checkpoint is saved without the fence': ['runner 1 commits', missed],
    'a lease keeps the fence of the one before': ['runner 2 commits', twice],
    'the fence is checked before the effects': ['runner 1 commits', missed],
    'the checkpoint is saved after the commit of the effects': [
      'runner 1 applies a page of 1 in its transaction',
      twice,
    ],
    'the checkpoint is saved before the effects': ['runner 1 applies a page of 1 in its transaction', missed],
    'an operator keeps the fence': ['runner 1 commits', missed],
    'a holder without an answer goes on from memory': ['runner 1 commits', twice],
    'the checkpoint is read before the lease is taken': ['runner 1 commits', twice],
    'a stopped holder keeps its transaction': ['runner 1 freezes for ever', stuck],
    'a lease does not expire': ['runner 1 dies, and starts again', stuck],
  }

  for (const mutant of leaseMutants)
    test(`${mutant}, and then "${ends[mutant][0]}": ${ends[mutant][1]}`, () => {
      const { counterExample } = explore(leaseModel({ runners: 2, events: 2, moves: 1 }, mutant))

      expect([counterExample?.steps.at(-1), counterExample?.reason]).toEqual(ends[mutant])
    })
})
