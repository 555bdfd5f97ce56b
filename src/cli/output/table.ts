/**
 * Tables and lists of fields: titles above, two spaces between columns, numbers to the right. On a terminal, the widest column
 * that may be cut is narrowed until a row fits into its line.
 */
import type { Colours, Style } from './output.ts'

export interface Column<Row> {
  readonly title: string
  readonly of: (row: Row) => string | number | undefined
  /** Aligned to the right, as numbers are. Default: to the left. */
  readonly right?: boolean | undefined
  /** May be cut on a narrow terminal. Default false. */
  readonly cut?: boolean | undefined
  readonly paint?: ((row: Row, colour: Colours) => (text: string) => string) | undefined
}

/** `empty` is printed instead of a table without rows. */
export function table<Row>(style: Style, rows: readonly Row[], columns: readonly Column<Row>[], empty: string): string {
  if (rows.length === 0) return style.colour.dim(empty)
  const cells = rows.map(row => columns.map(column => cellOf(column.of(row))))
  const widths = columns.map(({ title }, at) => Math.max(widthOf(title), ...cells.map(row => widthOf(row[at]!))))
  narrow(widths, columns, style.width)
  const pad = (text: string, at: number): string => {
    const shown = cutTo(text, widths[at]!, style)
    const space = ' '.repeat(Math.max(0, widths[at]! - widthOf(shown)))
    if (columns[at]!.right) return space + shown
    return at === columns.length - 1 ? shown : shown + space
  }
  const title = columns
    .map((column, at) => pad(column.title, at))
    .join('  ')
    .trimEnd()
  const lines = cells.map((row, index) =>
    row
      .map((text, at) => {
        const { paint } = columns[at]!
        const padded = pad(text, at)
        return paint === undefined ? padded : paint(rows[index]!, style.colour)(padded)
      })
      .join('  ')
      .trimEnd(),
  )
  return [style.colour.dim(title), ...lines].join('\n')
}

/** One thing: a name and a value on each line. A field whose value is undefined is left out. */
export function fields(style: Style, entries: Readonly<Record<string, string | number | undefined>>): string {
  const shown = Object.entries(entries).filter(([, value]) => value !== undefined)
  const width = Math.max(...shown.map(([name]) => name.length))
  return shown
    .map(([name, value]) => {
      const indented = String(value).replaceAll('\n', `\n${' '.repeat(width + 2)}`)
      return `${style.colour.dim(name.padEnd(width))}  ${indented}`.trimEnd()
    })
    .join('\n')
}

export function cutTo(text: string, width: number, { symbols }: Style): string {
  const characters = [...text]
  return characters.length <= width ? text : characters.slice(0, Math.max(0, width - 1)).join('') + symbols.ellipsis
}

function cellOf(value: string | number | undefined): string {
  if (value === undefined || value === '') return '-'
  // A cell is one line, even if a name or a message has line breaks.
  return String(value).replaceAll(/\s+/g, ' ')
}

/** Counts code points, which is exact enough for names and never splits one. */
function widthOf(text: string): number {
  return [...text].length
}

const minWidth = 8

function narrow<Row>(widths: number[], columns: readonly Column<Row>[], width: number | undefined): void {
  if (width === undefined) return
  let excess = widths.reduce((sum, each) => sum + each + 2, -2) - width
  while (excess > 0) {
    const cuttable = columns.flatMap((column, at) => (column.cut && widths[at]! > minWidth ? [at] : []))
    if (cuttable.length === 0) return
    const widest = cuttable.reduce((a, b) => (widths[b]! > widths[a]! ? b : a))
    const cut = Math.min(excess, widths[widest]! - minWidth)
    widths[widest]! -= cut
    excess -= cut
  }
}
