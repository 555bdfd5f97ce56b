/**
 * Tables and lists of fields, as plain as they can be: names above, two spaces between, numbers to the right. On a terminal
 * the widest column that may be cut gives way until a row fits its line.
 */
import type { Colours, Style } from './output.ts'

export interface Column<Row> {
  readonly title: string
  readonly of: (row: Row) => string | number | bigint | undefined
  /** To the right, as numbers are. Default: to the left. */
  readonly right?: boolean | undefined
  /** May be cut on a narrow terminal. Default false. */
  readonly cut?: boolean | undefined
  readonly paint?: ((row: Row, colour: Colours) => (text: string) => string) | undefined
}

/** A line that says so if there are no rows. */
export function table<Row>(style: Style, rows: readonly Row[], columns: readonly Column<Row>[], none: string): string {
  if (rows.length === 0) return style.colour.dim(none)
  const cells = rows.map(row => columns.map(column => cellOf(column.of(row))))
  const widths = columns.map(({ title }, at) => Math.max(widthOf(title), ...cells.map(row => widthOf(row[at]!))))
  narrow(widths, columns, style.width)
  const place = (text: string, at: number): string => {
    const shown = cutTo(text, widths[at]!, style)
    const space = ' '.repeat(Math.max(0, widths[at]! - widthOf(shown)))
    if (columns[at]!.right) return space + shown
    return at === columns.length - 1 ? shown : shown + space
  }
  const title = columns
    .map((column, at) => place(column.title, at))
    .join('  ')
    .trimEnd()
  const lines = cells.map((row, index) =>
    row
      .map((text, at) => {
        const { paint } = columns[at]!
        const placed = place(text, at)
        return paint === undefined ? placed : paint(rows[index]!, style.colour)(placed)
      })
      .join('  ')
      .trimEnd(),
  )
  return [style.colour.dim(title), ...lines].join('\n')
}

/** One thing: a name and a value on each line. What has no value is left out. */
export function fields(style: Style, entries: Readonly<Record<string, string | number | bigint | undefined>>): string {
  const shown = Object.entries(entries).filter(([, value]) => value !== undefined)
  const width = Math.max(...shown.map(([name]) => name.length))
  return shown
    .map(([name, value]) => {
      const indented = String(value).replaceAll('\n', `\n${' '.repeat(width + 2)}`)
      return `${style.colour.dim(name.padEnd(width))}  ${indented}`.trimEnd()
    })
    .join('\n')
}

function cellOf(value: string | number | bigint | undefined): string {
  if (value === undefined || value === '') return '-'
  // A cell is one line, whatever somebody has put into a name or a message.
  return String(value).replaceAll(/\s+/g, ' ')
}

/** Code points: good enough for names, and never splits one. */
function widthOf(text: string): number {
  return [...text].length
}

export function cutTo(text: string, width: number, { symbols }: Style): string {
  const letters = [...text]
  return letters.length <= width ? text : letters.slice(0, Math.max(0, width - 1)).join('') + symbols.ellipsis
}

const narrowest = 8

function narrow<Row>(widths: number[], columns: readonly Column<Row>[], width: number | undefined): void {
  if (width === undefined) return
  let excess = widths.reduce((sum, each) => sum + each + 2, -2) - width
  while (excess > 0) {
    const cuttable = columns.flatMap((column, at) => (column.cut && widths[at]! > narrowest ? [at] : []))
    if (cuttable.length === 0) return
    const widest = cuttable.reduce((a, b) => (widths[b]! > widths[a]! ? b : a))
    const taken = Math.min(excess, widths[widest]! - narrowest)
    widths[widest]! -= taken
    excess -= taken
  }
}
