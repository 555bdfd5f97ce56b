/** The tables of `test/portability/citus.md`: statements that are known not to run on Citus as they are. */
import { readFileSync, writeFileSync } from 'node:fs'

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
  const section =
    readFileSync(file, 'utf8')
      .split(/^## /m)
      .find(each => each.startsWith(`${heading}\n`)) ?? ''
  const rows = section.split('\n').filter(line => line.startsWith('|'))
  const plain = (cell: string): string => cell.trim().replaceAll('`', '').replaceAll('\\|', '|')
  return rows.slice(2).map(row => row.slice(2, -2).split(' | ').map(plain))
}

/** With RILLFLOW_UPDATE=1 the tables are written anew; tests of the whole suite have then sent every statement. */
export const isUpdating: boolean = process.env.RILLFLOW_UPDATE === '1'

/** What was not sent in this run stays listed, as long as it is one of our statements. */
export function updateExceptions(found: readonly Exception[], isKept: (listed: Exception) => boolean): void {
  const kept = listedExceptions().filter(isKept)
  const order = ({ rule, label }: Exception): string => `${String(rule).padStart(2)} ${label}`
  const rows = [...found, ...kept].sort((a, b) => (order(a) < order(b) ? -1 : 1)).map(rowOf)
  updateTable('Statements', rows.map(cellsOf))
}

export function updateNames(heading: 'Functions' | 'Sequences', names: readonly string[]): void {
  updateTable(
    heading,
    names.map(name => [`\`${name}\``]),
  )
}

function cellsOf(row: string): string[] {
  return row.slice(2, -2).split(' | ')
}

function updateTable(heading: string, rows: readonly (readonly string[])[]): void {
  const text = readFileSync(file, 'utf8')
  const sections = text.split(/^(?=## )/m).map(section => {
    if (!section.startsWith(`## ${heading}\n`)) return section
    const lines = section.split('\n')
    const first = lines.findIndex(line => line.startsWith('|'))
    const last = lines.findLastIndex(line => line.startsWith('|'))
    const head = cellsOf(lines[first]!).map(cell => cell.trim())
    const widths = head.map((cell, at) => Math.max(cell.length, ...rows.map(row => row[at]!.length)))
    const print = (row: readonly string[]): string =>
      `| ${row.map((cell, at) => cell.padEnd(widths[at]!)).join(' | ')} |`
    const table = [print(head), `| ${widths.map(width => '-'.repeat(width)).join(' | ')} |`, ...rows.map(print)]
    return [...lines.slice(0, first), ...table, ...lines.slice(last + 1)].join('\n')
  })
  writeFileSync(file, sections.join(''))
}

const file = new URL('citus.md', import.meta.url)
