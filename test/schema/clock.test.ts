/** Every statement reads the time by the schema's clock, and over a column: see `src/schema/clock.sql.ts`. */
import { expect, test } from 'vitest'
import { readSources } from '../support/source-files.ts'

/**
 * Statements about times that PostgreSQL itself has recorded, or that the directory of tenants has, which is not part of
 * a store; and the manifest of an archive, which says when it was really written.
 */
const others = [
  'src/events/order/order.ts',
  'src/upkeep/doctor/transactions.ts',
  'src/tenants/directory.ts',
  'src/transfer/export/export.ts',
  'src/schema/clock.sql.ts',
]

const sources = readSources('src').filter(
  ({ path }) => !others.includes(path) && !/schema\/expected|history\.ts$/.test(path),
)

test('no statement reads the time but by the clock', () => {
  const found = sources.flatMap(({ path, text }) =>
    text
      .split('\n')
      .filter(line => /\bclock_timestamp\(|\bstatement_timestamp\(|\bcurrent_timestamp\b|(?<![.(\w])now\(\)/.test(line))
      .filter(
        line =>
          !/^\s*(\*|\/\/|\/\*\*)|default (now|clock_timestamp)\(\)|^\s*(get )?now\(\)|=> now\(\)|\(now\(\),/.test(line),
      )
      .map(line => `${path}: ${line.trim()}`),
  )

  expect(found).toEqual([])
})

test('the clock is never read over a constant or a parameter of a statement', () => {
  const found = sources.flatMap(({ path, text }) =>
    [...text.matchAll(/clock\}?\((\$\{|'|\d|null\b)[^)]*\)/g)].map(match => `${path}: ${match[0]}`),
  )

  expect(found).toEqual([])
})
