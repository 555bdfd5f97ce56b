/** The indexes of a collection, as it declares them: one on the whole body, unless it is told not to. */
import { type DeclaredColumn, type DeclaredIndex, trustedSql } from '../schema/table.ts'

export interface IndexingOptions<_Doc extends object = Record<string, unknown>> {
  /** False leaves out the index on the whole body. Default true. */
  readonly gin?: boolean | undefined
}

/** What a collection's table has beyond the columns that all have. */
export function declareIndexes(
  table: string,
  options: IndexingOptions,
): { readonly columns: readonly DeclaredColumn[]; readonly indexes: readonly DeclaredIndex[] } {
  if (options.gin === false) return { columns: [], indexes: [] }
  return {
    columns: [],
    indexes: [{ name: `${table}_body`, method: 'gin', columns: [trustedSql`body jsonb_path_ops`] }],
  }
}

/** The fields that an index is on, by its name; undefined if it is none of this collection's. */
export function indexedFields(_table: string, _options: IndexingOptions, _index: string): string[] | undefined {
  return undefined
}
