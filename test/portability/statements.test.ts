/** Every statement of the library that the tests of this run have sent, against the rules of `test/portability/citus.md`. */
import { beforeAll, expect, inject, test } from 'vitest'
import { openStore } from '../../src/store.ts'
import { freshSchema, openDatabase } from '../support/engines.ts'
import { shopEvents } from '../support/shop.ts'
import { readSources } from '../support/source-files.ts'
import { labelOf, recordedStatements } from '../support/statement-recording.ts'
import { lint } from './lint.ts'
import { type Exception, isUpdating, listedExceptions, rowOf, updateExceptions } from './listed-exceptions.ts'
import { provision, useEveryPart } from './sample-usage.ts'
import { readCatalogue } from './volatility.ts'

let listed = listedExceptions()
const ours = new Set(readSources('src').flatMap(({ text }) => text.match(/[a-z_]+\.[a-z_]+/g) ?? []))
const labels = new Set<string>()
let found: Exception[] = []

beforeAll(async () => {
  const database = await openDatabase()
  const schema = freshSchema()
  await using store = await openStore({ events: shopEvents, database, schema })
  await provision(store)
  await useEveryPart(store)
  const catalogue = await readCatalogue(database, schema)
  // Some tests label their own statements.
  const statements = recordedStatements().filter(text => ours.has(labelOf(text)!))
  const findings = new Map<string, Set<string>>()
  for (const text of statements) {
    const label = labelOf(text)!
    labels.add(label)
    for (const { rule, what } of lint(text, catalogue)) {
      const key = `${rule} ${label}`
      findings.set(key, (findings.get(key) ?? new Set()).add(what))
    }
  }
  found = [...findings].map(([key, what]) => ({
    rule: Number(key.split(' ')[0]),
    label: key.split(' ')[1]!,
    what: [...what].sort(),
  }))
  if (isUpdating) {
    updateExceptions(found, ({ label }) => ours.has(label) && !labels.has(label))
    listed = listedExceptions()
  }
  return () => database.transaction(tx => tx.query(`drop schema "${schema}" cascade`))
}, 180_000)

test('every part has sent statements', () => {
  const parts = new Set([...labels].map(label => label.split('.')[0]))

  expect([...parts]).toEqual(
    expect.arrayContaining(['consumers', 'documents', 'events', 'projections', 'schema', 'sessions', 'workflows']),
  )
})

test('a statement that would not run on Citus, or not well, is in the table', () => {
  const missing = found.filter(({ rule, label, what }) => {
    const known = listed.find(each => each.rule === rule && each.label === label)
    return !what.every(each => known?.what.includes(each))
  })

  expect(missing.map(rowOf), 'write these rows into test/portability/citus.md, or fix the statements').toEqual([])
})

test('every entry of the table still applies', () => {
  const fixed = listed.filter(({ rule, label, what }) => {
    if (!ours.has(label)) return true
    // Fewer tests may not have sent a statement in all of its forms.
    if (!inject('isWholeRun') || !labels.has(label)) return false
    const now = found.find(each => each.rule === rule && each.label === label)
    return !what.every(each => now?.what.includes(each))
  })

  expect(fixed.map(rowOf), 'these rows of test/portability/citus.md no longer apply').toEqual([])
})

test('the table is sorted by rule and statement, without duplicates', () => {
  const order = listed.map(({ rule, label }) => `${String(rule).padStart(2)} ${label}`)

  expect(order).toEqual([...new Set(order)].sort())
})
