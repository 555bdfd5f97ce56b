/** The simulation finds bugs: each planted one, within a few seeds. */
import { expect, test } from 'vitest'
import { mutants } from './mutants.ts'
import { planOf } from './plan.ts'
import { simulate } from './simulate.ts'

const maxSeeds = 40

test.each(mutants)('the simulation finds that $name', async mutant => {
  let found: readonly string[] = []
  for (let seed = 1; seed <= maxSeeds && found.length === 0; seed++) {
    const plan = planOf(seed)
    found = (await simulate(mutant.likely?.(plan) ?? plan, mutant)).problems
  }

  expect(found).not.toEqual([])
})
