/** The simulation: its runs repeat, nothing breaks in fifty of them, and plans that have failed once. */
import { readdir, readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { type Plan, planOf, shrink, smaller } from './plan.ts'
import { simulate } from './simulate.ts'

const seeds = Array.from({ length: 50 }, (_, at) => at + 1)

test.each([7, 12, 29])('the same seed gives the same trace, byte by byte: %i', async seed => {
  const first = await simulate(planOf(seed))
  const second = await simulate(planOf(seed))

  expect(first.trace.length).toBeGreaterThan(200)
  expect(second.trace.join('\n')).toBe(first.trace.join('\n'))
})

test('another seed gives another trace', async () => {
  const plan = planOf(7)
  const first = await simulate(plan)
  const other = await simulate({ ...plan, seed: 8 })

  expect(other.trace.join('\n')).not.toBe(first.trace.join('\n'))
})

test.each(seeds)('appends, read models, deliveries and workflows are right in the run of seed %i', async seed => {
  const { problems } = await simulate(planOf(seed))

  expect(problems).toEqual([])
})

test('the fifty runs contain every task and every fault', () => {
  const plans = seeds.map(planOf)
  const kinds = new Set(plans.flatMap(({ tasks, faults }) => [...tasks, ...faults].map(({ kind }) => kind)))

  expect([...kinds].sort()).toEqual(
    ['append', 'cancel', 'crash', 'delay', 'dropHint', 'freeze', 'lose', 'place', 'refuse', 'repeatHint'].sort(),
  )
})

test('a plan that fails is made smaller while it fails', async () => {
  const plan = planOf(3)
  const fails = async ({ tasks }: Plan): Promise<boolean> => tasks.some(({ kind }) => kind === 'place')

  const smallest = await shrink(plan, fails)

  expect(smallest.tasks.map(({ kind }) => kind)).toEqual(['place'])
  expect(smallest).toMatchObject({ faults: [], processes: 1 })
  expect([...smaller(smallest)].some(({ tasks }) => tasks.length > 0)).toBe(false)
})

test('plans that have failed once do not fail again', async () => {
  const folder = new URL('./failed/', import.meta.url)
  const names = await readdir(folder).catch(() => [])
  for (const name of names.filter(each => each.endsWith('.json'))) {
    const plan = JSON.parse(await readFile(new URL(name, folder), 'utf8')) as Plan

    expect((await simulate(plan)).problems, name).toEqual([])
  }
})
