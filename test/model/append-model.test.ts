/** The outcome of an append that is sent again, in every order of its steps. */
import { describe, expect, test } from 'vitest'
import { type AppendBounds, type AppendMutant, appendModel, appendMutants } from './append-model.ts'
import { describeExample, explore } from './checker.ts'

const alone = { clients: 1, hasKey: false, resends: 3, others: 3, archivings: 2 } as const
const keyed = { clients: 2, hasKey: true, resends: 2, others: 1, archivings: 1 } as const

const runs: readonly [what: string, bounds: AppendBounds, states: number][] = [
  ['of a stream of any version', { ...alone, expected: 'any' }, 7_132],
  ['of an empty stream', { ...alone, expected: 'empty' }, 4_812],
  ['of a stream that exists', { ...alone, expected: 'exists' }, 5_238],
  ['of version 1', { ...alone, expected: 1 }, 4_180],
  ['under a key that two clients use', { ...keyed, expected: 'any' }, 55_150],
  ['of version 1, under a key that two clients use', { ...keyed, expected: 1 }, 29_610],
]

for (const [what, bounds, states] of runs)
  test(`an append ${what}, sent up to ${bounds.resends + 1} times, has the outcome that its answer says`, () => {
    const explored = explore(appendModel(bounds))

    expect(explored.counterExample && describeExample(explored.counterExample)).toBeUndefined()
    expect(explored.states).toBe(states)
  })

describe('the relatives of the protocol give answers that are not so:', () => {
  const refused = 'client 1 has the answer that it is refused, and it is stored'
  const twice = 'an append is stored twice'
  const ends: Record<AppendMutant, readonly [bounds: AppendBounds, lastStep: string, reason: string]> = {
    'an append that is sent again does not check its ids': [
      { ...alone, expected: 'empty' },
      'call 2 of client 1 commits',
      refused,
    ],
    'ids are checked before the stream is locked': [
      { ...alone, expected: 'empty' },
      'call 2 of client 1 commits',
      refused,
    ],
    'after a lost connection the ids are only looked up': [
      { ...alone, expected: 'any' },
      'call 1 of client 1 commits',
      refused,
    ],
    'a refusal of an append that was sent again is final': [
      { ...alone, expected: 'any' },
      'call 1 of client 1 commits',
      refused,
    ],
    'an append that is sent again has new ids': [{ ...alone, expected: 'any' }, 'call 2 of client 1 commits', twice],
    'ids are not unique': [{ ...alone, expected: 'any' }, 'call 1 of client 1 commits', twice],
    'a lost connection counts as a failure': [{ ...alone, expected: 'any' }, 'call 1 of client 1 commits', refused],
    'a key is looked up, and stored with the events': [
      { ...keyed, expected: 'any' },
      'call 1 of client 2 commits',
      twice,
    ],
    'a refused append leaves its key': [
      { ...keyed, expected: 'any' },
      'call 1 of client 2 commits',
      'client 2 has the answer that it is stored, and it is not',
    ],
  }

  for (const mutant of appendMutants) {
    const [bounds, ...end] = ends[mutant]
    test(`${mutant}, and then "${end[0]}": ${end[1]}`, () => {
      const { counterExample } = explore(appendModel(bounds, mutant))

      expect([counterExample?.steps.at(-1), counterExample?.reason]).toEqual(end)
    })
  }
})
