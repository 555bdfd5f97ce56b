/** The tables of a collection: its documents, and their history if it has one. */
import { InvalidName } from '../core/errors.ts'
import type { DeclaredTable } from '../schema/table.ts'
import type { CollectionOptions } from './collection.ts'
import { declareIndexes } from './indexes.ts'

/** Wide columns first, so that none needs padding. Document projections have the same table. */
export function collectionTable(name: string, options: CollectionOptions): DeclaredTable {
  const { columns, indexes } = declareIndexes(name, options)
  return {
    name,
    columns: [
      { name: 'version', type: 'bigint' },
      { name: 'created_at', type: 'timestamptz' },
      { name: 'updated_at', type: 'timestamptz' },
      { name: 'deleted_at', type: 'timestamptz', nullable: true },
      { name: 'id', type: 'text collate "C"' },
      { name: 'created_by', type: 'text', nullable: true },
      { name: 'updated_by', type: 'text', nullable: true },
      { name: 'body', type: 'jsonb' },
      ...columns,
    ],
    primaryKey: ['id'],
    indexes,
    fillfactor: 80,
  }
}

/** A row for each version, the newest included; one without a body where the document was deleted. */
export function historyTable(name: string): DeclaredTable {
  return {
    name: historyName(name),
    columns: [
      { name: 'version', type: 'bigint' },
      { name: 'updated_at', type: 'timestamptz' },
      { name: 'deleted_at', type: 'timestamptz', nullable: true },
      { name: 'created_at', type: 'timestamptz' },
      { name: 'id', type: 'text collate "C"' },
      { name: 'created_by', type: 'text', nullable: true },
      { name: 'updated_by', type: 'text', nullable: true },
      { name: 'body', type: 'jsonb', nullable: true },
    ],
    primaryKey: ['id', 'version'],
  }
}

export function historyName(table: string): string {
  return `${table}__history`
}

/** The name of a collection is the name of its table: one that PostgreSQL would cut is refused. */
export function checkCollectionName(name: unknown): string {
  const given = typeof name === 'string' ? name : String(name)
  const reason =
    typeof name !== 'string'
      ? 'is not a string'
      : !/^[\p{L}_][\p{L}\p{N}_]*$/u.test(name)
        ? 'must begin with a letter and have only letters, digits and _'
        : Buffer.byteLength(name) > maxBytes
          ? `has more than ${maxBytes} bytes`
          : undefined
  if (reason !== undefined) throw new InvalidName({ what: 'Collection', given, reason })
  return given
}

/** Leaves room for suffixes: `__history_pkey`, `_v2__rebuild`. */
const maxBytes = 40
