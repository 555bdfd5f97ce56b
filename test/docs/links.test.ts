/** Every link has a target, every page is linked, and every guarantee leads to a test. */
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { expect, test } from 'vitest'
import { type Page, pages, root } from './pages.ts'

test('every link of the README and of the docs leads to a file, and to a heading that it has', () => {
  const broken = pages.flatMap(page =>
    linksOf(page)
      .filter(({ path, anchor }) => !existsSync(join(root, path)) || !hasHeading(path, anchor))
      .map(({ path, anchor }) => `${page.path} → ${path}${anchor === undefined ? '' : `#${anchor}`}`),
  )

  expect(broken).toEqual([])
})

test('every page is linked from the index of the docs, or as an error from the list of errors', () => {
  const index = pages.find(({ path }) => path === 'docs/README.md')!
  const errors = pages.find(({ path }) => path === 'docs/reference/errors.md')!
  const linked = [index, errors].flatMap(linksOf).map(({ path }) => path)

  const lonely = pages.map(({ path }) => path).filter(path => path !== index.path && !linked.includes(path))

  expect(lonely).toEqual([])
})

test('every guarantee names a model, a judge of histories or the simulation, and a test that shows it', () => {
  const { text } = pages.find(({ path }) => path === 'docs/guarantees.md')!
  const guarantees = text.split('\n## ').filter(part => part.includes('**Holds.**'))

  expect(guarantees.length).toBeGreaterThan(10)
  const unshown = guarantees.filter(part => {
    const [, by = ''] = /\*\*Shown by\*\*([\s\S]*?)(?:\n\n|$)/.exec(part) ?? []
    return !/\]\(\.\.\/test\/[\w/-]+\.test\.ts\)/.test(by) || !/\b(?:model|judge|histories|simulation)\b/.test(by)
  })
  expect(unshown.map(part => part.split('\n')[0])).toEqual([])
})

interface Link {
  /** From the root of the package. */
  readonly path: string
  readonly anchor: string | undefined
}

function linksOf({ path, text }: Page): Link[] {
  return [...text.matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)].map(([, target, anchor]) => ({
    path: target === '' ? path : normalize(join(dirname(path), target!)),
    anchor,
  }))
}

function hasHeading(path: string, anchor: string | undefined): boolean {
  if (anchor === undefined) return true
  const titles = [...readFileSync(join(root, path), 'utf8').matchAll(/^#+ (.*)$/gm)].map(([, title]) => slug(title!))
  return titles.includes(anchor)
}

/** As GitHub makes them. */
function slug(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')
}
