/** The tables of `test/portability/citus.md`: statements that are known not to run on Citus as they are. */
import { readFileSync } from 'node:fs'

export interface Exception {
  readonly rule: number
  readonly label: string
  /** Each part that violates the rule, sorted. */
  readonly what: readonly string[]
}

export function listedExceptions(): Exception[] {
  return cellsUnder('Statements').map(([rule, label, what]) => ({
    rule: Number(rule),
    label: label!,
    what: what!.split(', '),
  }))
}

/** A row as in the table, without its padding. */
export function rowOf({ rule, label, what }: Exception): string {
  const cell = what.map(each => `\`${each.replaceAll('|', '\\|')}\``).join(', ')
  return `| ${rule} | \`${label}\` | ${cell} |`
}

export function listedNames(heading: 'Functions' | 'Sequences'): string[] {
  return cellsUnder(heading).map(([name]) => name!)
}

/** The cells of the table under a heading, without backticks. */
function cellsUnder(heading: string): string[][] {
  const section = text.split(/^## /m).find(each => each.startsWith(`${heading}\n`)) ?? ''
  const rows = section.split('\n').filter(line => line.startsWith('|'))
  const plain = (cell: string): string => cell.trim().replaceAll('`', '').replaceAll('\\|', '|')
  return rows.slice(2).map(row => row.slice(2, -2).split(' | ').map(plain))
}

const text = readFileSync(new URL('citus.md', import.meta.url), 'utf8')
