/** The page for those who come from the Rust edition has every call of it, and names only calls and options that there are. */
import { expect, test } from 'vitest'
import { findCommand, isGroup } from '../../src/cli/arguments.ts'
import { root as commands } from '../../src/cli/commands/commands.ts'
import { olderLines } from '../../src/cli/older-lines.ts'
import * as library from '../../src/index.ts'
import { defineAggregate, defineCollection, openStore } from '../../src/index.ts'
import * as query from '../../src/query.ts'
import { storeOptionNames } from '../../src/store.ts'
import * as testing from '../../src/testing/testing.ts'
import { pages } from './pages.ts'
import { rustCalls } from './rust-calls.ts'

const page = pages.find(({ path }) => path === 'docs/coming-from-rillflow-rust.md')!.text
const rows = itemsOf(page)
const codesOf = (text: string): string[] => [...text.matchAll(/`([^`]+)`/g)].map(([, code]) => code!)

test('every public call of the Rust edition is on the page, once', () => {
  const all = Object.entries(rustCalls).flatMap(([type, names]) => names.split(' ').map(name => `${type}::${name}`))
  const named = rows.flatMap(({ rust }) => codesOf(rust)).filter(code => code.includes('::'))

  expect(named.toSorted()).toEqual(all.toSorted())
})

test('every call of the store that the page names is there', async () => {
  const snapshots = { every: 9, lifecycle: 'async' } as const
  const Order = defineAggregate('order', { initial: () => ({}), evolve: order => order, snapshots })
  const customers = defineCollection('customers')
  await using store = await openStore({ memory: true, aggregates: [Order], collections: [customers] })
  await using session = store.session()
  const documents = store.documents(customers)
  const objects: readonly (readonly [string, object])[] = [
    ['store.documents(collection).', documents],
    ['store.aggregates(Order).', store.aggregates(Order)],
    ['session.documents(c).', session.documents(customers)],
    ['store.documents(c).', documents],
    ['session.', session],
    ['store.', store],
    ['.', documents.query()],
  ]
  const codes = rows
    .flatMap(({ here }) => codesOf(here))
    .flatMap(code => /^(?:\w+(?:\(\w+\))?)?(?:\.\w+(?:\(\w+\)(?=\.))?)+/.exec(code) ?? [])
  const calls = [...new Set(codes)].filter(code => /^(store|session|\.)/.test(code) && code !== 'store.tenant')

  const missing = calls.filter(call => {
    const [prefix, owner] = objects.find(([name]) => call.startsWith(name))!
    const path = call.slice(prefix.length).split('.')
    return (
      path.reduce<unknown>((found, name) => (found as Record<string, unknown> | undefined)?.[name], owner) === undefined
    )
  })

  expect(calls.length).toBeGreaterThan(50)
  expect(missing).toEqual([])
})

test('every function, condition and option of the store that the page names is there', () => {
  const exported = { ...library, ...query, ...testing }
  const functions = rows.flatMap(
    ({ here }) => here.match(/(?<=`)(?:define\w+|openStore|compileQuery|testStore)/g) ?? [],
  )
  const conditions = rows.filter(({ rust }) => rust.includes('Predicate::')).flatMap(({ here }) => codesOf(here))
  const options = rows.flatMap(({ rust, here }) => {
    const [, named = ''] = /^options? ((?:`[^`]+`(?:, | and )?)+)/.exec(here) ?? []
    return rust.startsWith('`Store') || named === '' ? codesOf(named) : []
  })

  for (const name of functions) expect(exported).toHaveProperty(name)
  for (const name of conditions.filter(code => /^\w+$/.test(code))) expect(exported).toHaveProperty(name)
  for (const option of options.flatMap(code => /^\w+/.exec(code) ?? []))
    expect([...storeOptionNames, 'includeArchived']).toContain(option)
  expect(functions.length).toBeGreaterThan(5)
  expect(options.length).toBeGreaterThan(5)
})

test('every line of the Rust edition that the page names is read, and those next to it are commands', async () => {
  const section = page.slice(page.indexOf('## The command line'))
  const lines = itemsOf(section)
  const known = { ...olderLines, ...commands.synonyms }

  for (const { rust, here } of lines) {
    for (const older of codesOf(rust)) expect(Object.keys(known)).toContain(older)
    for (const line of codesOf(here)) {
      const { entry } = await findCommand(commands, line.replace('rillflow ', '').split(' '))
      expect({ line, isGroup: isGroup(entry) }).toEqual({ line, isGroup: false })
    }
  }
  expect(lines.length).toBeGreaterThan(8)
})

/** The items of lists: the names there, an arrow, and what there is here. An item may go on in the next line. */
function itemsOf(text: string): { rust: string; here: string }[] {
  const items = text.replaceAll('\n  ', ' ').matchAll(/^- (`.*?) → (.*)$/gm)
  return [...items].map(([, rust, here]) => ({ rust: rust!, here: here! }))
}
