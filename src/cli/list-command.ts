/**
 * The command that every noun has: `rillflow <noun> list`. It is described by its columns. The table, the JSON, the line for
 * an empty list and the hint for the next page are the same everywhere.
 *
 *     rillflow streams list                    a table
 *     rillflow streams list --json             one JSON document
 *     rillflow streams list --after order-7    the next page
 *
 * What can fail: the list itself. Its error is reported like that of any other command.
 */
import type { Store } from '../store.ts'
import {
  type Argument,
  type ArgumentValues,
  type Command,
  defineCommand,
  type Option,
  type OptionValues,
} from './command.ts'
import type { Style } from './output/output.ts'
import { type Column, table } from './output/table.ts'

export interface ListOptions<Row, A extends readonly Argument[], O extends Readonly<Record<string, Option>>> {
  readonly description?: string | undefined
  readonly arguments?: A
  readonly options?: O
  readonly examples: readonly string[]
  /** The line that is printed for an empty list. */
  readonly empty: string
  list(store: Store, given: ArgumentValues<A> & OptionValues<O>): Promise<readonly Row[]>
  columns(style: Style): readonly Column<Row>[]
  /** The line that shows the next page; undefined on the last page. */
  nextPage?(rows: readonly Row[], given: ArgumentValues<A> & OptionValues<O>): string | undefined
}

export function listCommand<
  Row,
  const A extends readonly Argument[] = [],
  // biome-ignore lint/complexity/noBannedTypes: a command without options has none
  const O extends Readonly<Record<string, Option>> = {},
>({ list, columns, empty, nextPage, ...description }: ListOptions<Row, A, O>): Command {
  return defineCommand({
    ...description,
    async run({ out, open, arguments: values, options }) {
      const given = { ...values, ...options } as ArgumentValues<A> & OptionValues<O>
      const { store } = await open()
      const rows = await list(store, given)
      out.print(rows, style => table(style, rows, columns(style), empty))
      const next = nextPage?.(rows, given)
      if (next !== undefined) out.note(`There may be more: ${next}`)
    },
  })
}

/** Options that the lists of several nouns have. */
export const limitOption = {
  kind: 'whole',
  default: 50,
  value: 'COUNT',
  summary: 'The maximum number of rows',
} as const
