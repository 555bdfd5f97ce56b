/** Every bug in `known-bugs.md` has a test that names it. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { readSources } from './support/source-files.ts'

const text = readFileSync(new URL('known-bugs.md', import.meta.url), 'utf8')

test('every known bug of another store is named by the title of a test', () => {
  const bugs = [...text.matchAll(/^- \*\*(.*?)\*\*: .+ → .+$/gm)].flatMap(([, numbers]) => numbersIn(numbers!))
  const titles = readSources('test').flatMap(source => source.text.match(/^(?!\s*[/*]).*['`].*$/gm) ?? [])
  const named = new Set(titles.flatMap(numbersIn))

  expect(bugs.length).toBeGreaterThan(150)
  expect(bugs.filter(bug => !named.has(bug))).toEqual([])
})

/** `RB-04 to RB-06, Marten#5262` as four names. */
function numbersIn(title: string): string[] {
  return [...title.matchAll(/([RSA]B-)(\d+)(?: to [RSA]B-(\d+))?|[\w/]*#\d+|\bEmmett\b/g)].flatMap(
    ([name, prefix, first, last = first]) =>
      prefix === undefined
        ? [name]
        : Array.from(
            { length: Number(last) - Number(first) + 1 },
            (_, at) => `${prefix}${String(Number(first) + at).padStart(2, '0')}`,
          ),
  )
}
