/** Random patches of random documents, compared with the same changes in memory. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { append, increment, insert, type Patch, remove, rename, set, unset } from '../../src/documents/patch/patch.ts'
import { openShop, outcome } from '../support/shop.ts'
import { type Change, type Json, type PlannedChange, patchedModel, type Step } from './patch-model.ts'

// Few keys and values, so that patches hit existing ones.
const keys = fc.constantFrom('a', 'b', '0', '1')
const values: fc.Arbitrary<Json> = fc.letrec<{ value: Json; list: Json; object: Json }>(tie => ({
  value: fc.oneof({ maxDepth: 3 }, fc.constantFrom<Json>(null, 1, 2, 'x', true), tie('list'), tie('object')),
  list: fc.array(tie('value'), { maxLength: 3 }) as fc.Arbitrary<Json>,
  object: fc.dictionary(keys, tie('value'), { maxKeys: 3 }) as fc.Arbitrary<Json>,
})).value
const documents = fc.dictionary(keys, values, { maxKeys: 4 }) as fc.Arbitrary<{ [key: string]: Json }>

const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3, arbitrary: keys.map(key => ({ key, isIndex: false })) },
  { weight: 1, arbitrary: fc.constantFrom('0', '1', '2').map(key => ({ key, isIndex: true })) },
)
const changes: fc.Arbitrary<Change> = fc.oneof(
  values.map(value => ({ kind: 'set' as const, value })),
  fc.constant({ kind: 'unset' as const }),
  fc.constantFrom(1, -2).map(by => ({ kind: 'increment' as const, by })),
  values.map(value => ({ kind: 'append' as const, value })),
  values.map(value => ({ kind: 'remove' as const, value })),
  fc.tuple(fc.nat({ max: 2 }), values).map(([at, value]) => ({ kind: 'insert' as const, at, value })),
  fc.constant({ kind: 'rename' as const, to: 'renamed' }),
)
const planned: fc.Arbitrary<PlannedChange> = fc.record({
  steps: fc.array(steps, { minLength: 1, maxLength: 3 }),
  change: changes,
})

test('a patch gives the same result as the changes in memory, or is refused where they cannot be made', async () => {
  const { store } = await openShop()
  const things = store.documents('things', { gin: false })
  const seen = { patched: 0, misfit: 0 }

  const property = fc.asyncProperty(
    documents,
    fc.array(planned, { minLength: 1, maxLength: 4 }),
    async (before, plan) => {
      const { id } = await things.insert(before)
      const patch = Object.fromEntries(plan.map(({ steps, change }) => [pathOf(steps), operation(change)]))
      const result = await outcome(things.patch(id, patch as Patch<Record<string, unknown>>))
      const code = (result.error as { code?: string } | undefined)?.code
      fc.pre(code !== 'invalid_patch')

      const latest = new Map(plan.map(each => [pathOf(each.steps), each]))
      const expected = patchedModel(before, [...latest.values()])
      seen[expected === undefined ? 'misfit' : 'patched']++
      expect({ code, data: (await things.get(id))!.data }).toEqual(
        expected === undefined ? { code: 'patch_mismatch', data: before } : { code: undefined, data: expected },
      )
    },
  )
  await fc.assert(property, { numRuns: process.env.RILLFLOW_CHAOS === 'long' ? 2000 : 150 })

  expect(Math.min(seen.patched, seen.misfit)).toBeGreaterThan(10)
})

function pathOf(steps: readonly Step[]): string {
  return steps.map(({ key, isIndex }, i) => (isIndex ? `[${key}]` : i === 0 ? key : `.${key}`)).join('')
}

function operation(change: Change): unknown {
  switch (change.kind) {
    case 'set':
      return set(change.value)
    case 'unset':
      return unset()
    case 'increment':
      return increment(change.by)
    case 'append':
      return append(change.value)
    case 'remove':
      return remove(change.value)
    case 'insert':
      return insert(change.at, change.value)
    case 'rename':
      return rename(change.to)
  }
}
