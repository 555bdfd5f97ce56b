/**
 * Tables and lists of fields: titles above, two spaces between columns, numbers to the right. On a terminal whose line a row
 * does not fit into, the column that matters gets a line of its own below it, columns that matter least are left out, and
 * then the widest column that may be cut is narrowed.
 */
import type { Colours, Style } from './output.ts'

export interface Column<Row> {
  readonly title: string
  readonly of: (row: Row) => string | number | undefined
  /** Aligned to the right, as numbers are. Default: to the left. */
  readonly right?: boolean | undefined
  /** May be cut on a narrow terminal. Default false. */
  readonly cut?: boolean | undefined
  /** Gets a line of its own, whole, on a terminal that is too narrow. For the column that people look for. */
  readonly below?: boolean | undefined
  /** Left out on a terminal that is too narrow, the highest number first. */
  readonly leftOut?: number | undefined
  readonly paint?: ((row: Row, colour: Colours) => (text: string) => string) | undefined
}

/** `empty` is printed instead of a table without rows. */
export function table<Row>(style: Style, rows: readonly Row[], columns: readonly Column<Row>[], empty: string): string {
  if (rows.length === 0) return style.colour.dim(empty)
  const { shown, below } = arranged(rows, columns, style.width)
  const cells = rows.map(row => shown.map(column => cellOf(column.of(row))))
  const widths = widthsOf(shown, cells)
  narrow(widths, shown, style.width)
  const pad = (text: string, at: number): string => {
    const fitted = cutTo(text, widths[at]!, style)
    const space = ' '.repeat(Math.max(0, widths[at]! - widthOf(fitted)))
    if (shown[at]!.right) return space + fitted
    return at === shown.length - 1 ? fitted : fitted + space
  }
  const title = shown
    .map((column, at) => pad(column.title, at))
    .join('  ')
    .trimEnd()
  const lines = cells.flatMap((row, index) => {
    const line = row
      .map((text, at) => {
        const { paint } = shown[at]!
        const padded = pad(text, at)
        return paint === undefined ? padded : paint(rows[index]!, style.colour)(padded)
      })
      .join('  ')
      .trimEnd()
    const text = below?.of(rows[index]!)
    return text === undefined ? [line] : [line, wrapped(cellOf(text), style.width, 2)]
  })
  return [style.colour.dim(title), ...lines].join('\n')
}

/** The columns that are shown side by side, and the one that goes below each row. */
function arranged<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  width: number | undefined,
): { readonly shown: readonly Column<Row>[]; readonly below: Column<Row> | undefined } {
  const excessOf = (some: readonly Column<Row>[]): number =>
    width === undefined
      ? 0
      : sumOf(
          widthsOf(
            some,
            rows.map(row => some.map(column => cellOf(column.of(row)))),
          ),
        ) - width
  if (excessOf(columns) <= 0) return { shown: columns, below: undefined }
  const below = columns.find(column => column.below)
  let shown = columns.filter(column => column !== below)
  while (excessOf(shown) > 0) {
    const last = shown.reduce<Column<Row> | undefined>(
      (found, each) => (each.leftOut !== undefined && each.leftOut > (found?.leftOut ?? 0) ? each : found),
      undefined,
    )
    if (last === undefined) break
    shown = shown.filter(column => column !== last)
  }
  return { shown, below }
}

function widthsOf<Row>(columns: readonly Column<Row>[], cells: readonly (readonly string[])[]): number[] {
  return columns.map(({ title }, at) => Math.max(widthOf(title), ...cells.map(row => widthOf(row[at]!))))
}

function sumOf(widths: readonly number[]): number {
  return widths.reduce((sum, each) => sum + each + 2, -2)
}

/** A text in lines of at most `width`, each after so many spaces. A word that is longer stays whole. */
export function wrapped(text: string, width: number | undefined, indent: number): string {
  const space = ' '.repeat(indent)
  if (width === undefined) return space + text
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const line = lines.at(-1)
    if (line !== undefined && widthOf(line) + 1 + widthOf(word) <= width - indent)
      lines[lines.length - 1] = `${line} ${word}`
    else lines.push(word)
  }
  return lines.map(line => space + line).join('\n')
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

/** Keeps the beginning, which has the category, and the end, which tells ids apart. */
export function cutMiddle(text: string, width: number, { symbols }: Style): string {
  const characters = [...text]
  if (characters.length <= width) return text
  const end = Math.floor((width - 1) / 2)
  return `${characters.slice(0, width - 1 - end).join('')}${symbols.ellipsis}${characters.slice(-end).join('')}`
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
  let excess = sumOf(widths) - width
  while (excess > 0) {
    const cuttable = columns.flatMap((column, at) => (column.cut && widths[at]! > minWidth ? [at] : []))
    if (cuttable.length === 0) return
    const widest = cuttable.reduce((a, b) => (widths[b]! > widths[a]! ? b : a))
    const cut = Math.min(excess, widths[widest]! - minWidth)
    widths[widest]! -= cut
    excess -= cut
  }
}
