/** The document of one stream as its projection has it, for whoever folds on from there. */
import type { ReadKept } from '../../aggregates/projected.ts'
import { type Identifier, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'

export function readKept(tableIn: (schema: string) => Identifier): ReadKept {
  const made = new WeakSet<Log>()
  return async (log, executor, stream) => {
    const table = tableIn(log.schema)
    if (!made.has(log)) {
      const [row] = await executor.run<{ exists: boolean }>(sql`/* projections.has_table */
        select to_regclass(${table.quoted}::text) is not null as exists`)
      if (row?.exists !== true) return undefined
      // What a transaction sees may be gone with it.
      if (executor === log.database) made.add(log)
    }
    const [row] = await executor.run<{ body: unknown; version: number }>(sql`/* projections.kept */
      select body, version
      from ${table}
      where id = ${stream}::text
        and deleted_at is null
        and version > 0`)
    return row === undefined ? undefined : { state: row.body, version: Number(row.version) }
  }
}
