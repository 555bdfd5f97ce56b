/**
 * The command that every noun has: `rillflow <noun> list`. It is described by its columns. The table, the JSON, the line for
 * an empty list and the hint for the next page are the same everywhere.
 *
 *     rillflow runners list                    a table
 *     rillflow runners list --json             one JSON document: { "items": […], "next": "…" }
 *     rillflow runners list --after NEXT       the next page; on the last page there is no "next"
 *
 * What can fail: the list itself. Its error is reported like that of any other command.
 */
import type { Page } from '../core/page.ts'
import type { Store } from '../store.ts'
import {
  type Argument,
  type ArgumentValues,
  type Command,
  defineCommand,
  type Option,
  type OptionValues,
} from './command.ts'
import type { Output, Style } from './output/output.ts'
import { type Column, table } from './output/table.ts'

export interface ListOptions<Row, A extends readonly Argument[], O extends Readonly<Record<string, Option>>> {
  readonly description?: string | undefined
  readonly arguments?: A
  readonly options?: O
  readonly examples: readonly string[]
  /** The line that is printed for an empty list. */
  readonly empty: string
  /** Its options include `pageOptions`. */
  list(store: Store, given: ArgumentValues<A> & OptionValues<O>): Promise<Page<Row>>
  columns(style: Style): readonly Column<Row>[]
}

export function listCommand<
  Row,
  const A extends readonly Argument[] = [],
  // biome-ignore lint/complexity/noBannedTypes: a command without options has none
  const O extends Readonly<Record<string, Option>> = {},
>({ list, columns, empty, ...description }: ListOptions<Row, A, O>): Command {
  return defineCommand({
    ...description,
    async run({ out, open, arguments: values, options }) {
      const given = { ...values, ...options } as ArgumentValues<A> & OptionValues<O>
      const { store } = await open()
      printPage(out, await list(store, given), columns, empty)
    },
  })
}

/** Also for lists that are not of one store. */
export function printPage<Row>(
  out: Output,
  { items, next }: Page<Row>,
  columns: (style: Style) => readonly Column<Row>[],
  empty: string,
): void {
  out.print({ items, next }, style => table(style, items, columns(style), empty))
  if (next !== undefined) out.note(`There are more. For the next page add --after ${next} to the same line.`)
}

/** The options of every list. */
export const pageOptions = {
  after: { kind: 'text', value: 'NEXT', summary: 'Show the next page: the value that the previous page printed' },
  limit: { kind: 'whole', default: 50, value: 'COUNT', summary: 'The maximum number of rows on a page' },
} as const
