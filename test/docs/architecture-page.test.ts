/** The page about the architecture is true: its list of layers is made from the code, and the files it names exist. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { expectFile } from '../schema/generated-file.ts'
import { layerList } from './layer-list.ts'
import { root } from './pages.ts'

const page = 'docs/internals/architecture.md'
const marks = /(?<=<!-- layers: made by test\/docs\/architecture-page -->\n\n).*?(?=\n\n<!-- end of layers -->)/s

test('docs/internals/architecture.md lists the layers that the architecture test enforces', () => {
  const text = readFileSync(join(root, page), 'utf8')

  expect(text).toMatch(marks)
  expectFile(
    page,
    text.replace(marks, () => layerList()),
    'test/docs/architecture-page',
  )
})

test('every file that the internals name exists', () => {
  const folder = join(root, 'docs/internals')
  const missing = readdirSync(folder).flatMap(name =>
    [...readFileSync(join(folder, name), 'utf8').matchAll(/`([\w./-]+\/[\w.-]+\.(?:ts|js)|(?:src|test)\/[\w./-]+)`/g)]
      .map(([, path]) => path!)
      .filter(path => !existsSync(join(root, path)) && !existsSync(join(root, 'src', path)))
      .map(path => `${name}: ${path}`),
  )

  expect(missing).toEqual([])
})

test('no walk of the architecture is longer than it may be', () => {
  const text = readFileSync(join(root, page), 'utf8')
  const filesOf = (heading: string): number => {
    const [, walk = ''] = text.split(`## ${heading}\n`)
    return new Set([...walk.split('\n## ')[0]!.matchAll(/`([\w./-]+\.ts)`/g)].map(([, path]) => path)).size
  }

  const walks = { 'From an append to a document': 18, 'From a publish to settled': 22, 'One session.save()': 14 }
  for (const [heading, limit] of Object.entries(walks)) {
    expect(filesOf(heading), heading).toBeGreaterThan(4)
    expect(filesOf(heading), heading).toBeLessThanOrEqual(limit)
  }
})
