/** The skill for coding agents, and `llms.txt`, say nothing that the package does not have. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { llmsText } from '../../docs/site/llms.js'
import { expectFile } from '../schema/generated-file.ts'
import { openShop } from '../support/shop.ts'
import { pages, root } from './pages.ts'

const skill = readFileSync(join(root, 'docs/SKILL.md'), 'utf8')
const { exports, files } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

test('every call of a store that the skill names exists', async () => {
  const { store } = await openShop()
  const named = [...skill.matchAll(/\bstore\.((?:\w+\.)*\w+)\(/g)].map(([, path]) => path!)
  // They are of testing.
  const wanted = [...new Set(named)].filter(path => path !== 'advance')

  const missing = wanted.filter(path => {
    const found = path.split('.').reduce<unknown>((value, name) => (value as Record<string, unknown>)?.[name], store)
    return typeof found !== 'function'
  })

  expect(wanted.length).toBeGreaterThan(8)
  expect(missing).toEqual([])
})

test('every function that the skill names can be imported', async () => {
  const entries = Object.values(exports as Record<string, string>).filter(path => path.endsWith('.js'))
  const modules = await Promise.all(
    entries.map(path => import(join(root, path.replace('./dist/', 'src/').replace(/\.js$/, '.ts')))),
  )
  const known = new Set(modules.flatMap(module => Object.keys(module)))
  const named = [
    ...skill.matchAll(
      /`(define\w+|from[A-Z]\w+|eventStream|idempotencyKey|errorResponse|nodeListener|specify|testStore|isRillflowError)/g,
    ),
  ]

  expect(named.length).toBeGreaterThan(15)
  expect(named.map(([, name]) => name!).filter(name => !known.has(name))).toEqual([])
})

test('every entry and every error that the skill names exists', () => {
  const entries = [...skill.matchAll(/`rillflow\/(\w+)`/g)].map(([, name]) => `./${name}`)
  const codes = [...skill.matchAll(/`([a-z]+(?:_[a-z]+)+)`/g)].map(([, code]) => `docs/reference/errors/${code}.md`)

  expect(entries.filter(name => !(name in exports))).toEqual([])
  expect(codes.length).toBeGreaterThan(1)
  expect(codes.filter(path => !existsSync(join(root, path)))).toEqual([])
})

test('llms.txt is made from the index of the docs, and the package has every page it names', () => {
  const text = llmsText()
  expectFile('docs/llms.txt', text, 'test/docs/skill')

  const named = [...text.matchAll(/\]\(([^)]+)\)/g)].map(([, path]) => `docs/${path}`)
  const shipped = (path: string): boolean =>
    (files as string[]).some(each => (each === 'docs/*.md' ? /^docs\/[^/]+\.md$/.test(path) : path.startsWith(each)))
  expect(named.length).toBeGreaterThan(25)
  expect(named.filter(path => !existsSync(join(root, path)))).toEqual([])
  expect(named.filter(path => !shipped(path))).toEqual([])
  expect(pages.some(({ path }) => path === 'docs/SKILL.md')).toBe(true)
})
