/** Every statement of the library that the tests of this run have sent, against the rules of `test/portability/citus.md`. */
import { beforeAll, expect, test } from 'vitest'
import { openStore } from '../../src/store.ts'
import { freshSchema, openDatabase } from '../support/engines.ts'
import { shopEvents } from '../support/shop.ts'
import { readSources } from '../support/source-files.ts'
import { labelOf, recordedStatements } from '../support/statement-recording.ts'
import { lint } from './lint.ts'
import { provision, useEveryPart } from './sample-usage.ts'
import { readCatalogue } from './volatility.ts'

/**
 * Statements that are never sent to the tables of a tenant on a cluster: the copies that move a tenant between plain servers
 * (a cluster moves its own), statements of sequences (a cluster has counters), locks that hold for a schema as a whole,
 * which are all taken through the one address that changes of tables go to, and the one statement of saves that go
 * together: where rows are on nodes, each save takes a few (`Database.hasNodes`).
 */
const elsewhere = [
  { rules: [19, 26], label: /^move\./ },
  { rules: [27], label: /^(schema\.raise_sequence|schema\.drawn_sequences|move\..*|events\.settle_.*)$/ },
  { rules: [26], label: /^(schema\.lock|export\.lock|schema\.lock_to_build|import\.lock|tenants\.make_lock)$/ },
  { rules: [26], label: /^sessions\.save(_alone)?$/ },
]

const ours = new Set(readSources('src').flatMap(({ text }) => text.match(/[a-z_]+\.[a-z_]+/g) ?? []))
const labels = new Set<string>()
const found = new Set<string>()

beforeAll(async () => {
  const database = await openDatabase()
  const schema = freshSchema()
  await using store = await openStore({ events: shopEvents, database, schema })
  await provision(store)
  await useEveryPart(store)
  const catalogue = await readCatalogue(database, schema)
  // Some tests label their own statements.
  for (const recorded of recordedStatements()) {
    // As it was before a server that stands for a node renamed it (`node-errors.ts`).
    const text = recorded.replaceAll('rillflow.lock_timeout', 'lock_timeout')
    const label = labelOf(text)!
    if (!ours.has(label)) continue
    labels.add(label)
    for (const { rule, what } of lint(text, catalogue))
      if (!elsewhere.some(each => each.rules.includes(rule) && each.label.test(label)))
        found.add(`${label} breaks rule ${rule}: ${what}`)
  }
  return () => database.transaction(tx => tx.query(`drop schema "${schema}" cascade`))
}, 180_000)

test('every part has sent statements', () => {
  const parts = new Set([...labels].map(label => label.split('.')[0]))

  expect([...parts]).toEqual(
    expect.arrayContaining(['consumers', 'documents', 'events', 'projections', 'schema', 'sessions', 'workflows']),
  )
})

test('every statement runs on Citus as it is', () => {
  expect([...found].sort()).toEqual([])
})
