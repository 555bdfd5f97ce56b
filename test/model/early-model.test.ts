/** Executions that run before anything of them is stored, in every order of the steps. */
import { describe, expect, test } from 'vitest'
import { describeExample, explore } from './checker.ts'
import { type EarlyBounds, type EarlyMutant, earlyModel, earlyMutants } from './early-model.ts'

const quiet: EarlyBounds = { deaths: 0, cancels: 0, registrations: 0, lostAnswers: 0, crashes: 0 }
const runs: Record<string, { bounds: EarlyBounds; states: number }> = {
  'two processes that die, and a lost answer': { bounds: { ...quiet, deaths: 2, lostAnswers: 1 }, states: 7_939 },
  'a process that dies, a cancelled workflow and a new handler': {
    bounds: { ...quiet, deaths: 1, cancels: 1, registrations: 1 },
    states: 42_116,
  },
  'a server that crashes, and a process that dies': { bounds: { ...quiet, deaths: 1, crashes: 1 }, states: 32_012 },
}

for (const [what, { bounds, states }] of Object.entries(runs))
  test(`${what}: the end of each execution counts once`, () => {
    const explored = explore(earlyModel(bounds))

    expect(explored.counterExample && describeExample(explored.counterExample)).toBeUndefined()
    expect(explored.states).toBe(states)
  })

describe('the relatives of the protocol lose an end, or count one too many:', () => {
  const all: EarlyBounds = { ...quiet, deaths: 1 }
  const ends: Record<EarlyMutant, readonly [bounds: EarlyBounds, reason: string]> = {
    'ends are stored under any fence, from any checkpoint': [all, 'the end of an execution counts twice'],
    'the checkpoint is not compared': [{ ...quiet, crashes: 1, deaths: 1 }, 'an event was skipped'],
    'the routes are not compared': [
      { ...quiet, registrations: 1 },
      'an event was dispatched without a handler that was registered',
    ],
    'the states of workflows are not looked at': [
      { ...quiet, cancels: 1 },
      'an end counts although the workflow was cancelled before',
    ],
    'the checkpoint moves before the handlers have ended': [all, 'an event was skipped'],
    'ends are not flushed to the disk': [{ ...quiet, crashes: 1 }, 'an end that was reported to a caller is gone'],
    'a successor runs before it stores, too': [
      { ...quiet, deaths: 2 },
      'two processes died of an event, and no crash was counted',
    ],
    'a successor stores only one event before it runs': [
      { ...quiet, deaths: 2 },
      'two processes died of an event, and no crash was counted',
    ],
  }

  for (const mutant of earlyMutants)
    test(`${mutant}: ${ends[mutant][1]}`, () => {
      const [bounds, reason] = ends[mutant]

      const { counterExample } = explore(earlyModel(bounds, mutant))

      expect(counterExample?.reason).toBe(reason)
    })
})
