/**
 * Schemas of closed temporary stores, emptied and used again: making one runs all migrations, emptying one is a few deletes.
 * Only one that has exactly the objects it was made with is kept; any other is dropped.
 */
import type { Database } from '../database/database.ts'
import { identifier, literal, sql } from '../database/sql.ts'

export interface SpareSchemas {
  /** One that is empty, if there is one. */
  take(): string | undefined
  /** Tells what a schema looks like that a store has just made. */
  learn(schema: string): Promise<void>
  /** Empties a schema and keeps it, or drops it. */
  giveBack(schema: string): Promise<void>
}

export function spareSchemas(database: Database): SpareSchemas {
  const spare: string[] = []
  let born: Description | undefined
  return {
    take: () => spare.pop(),
    async learn(schema) {
      born ??= await describe(database, schema)
    },
    async giveBack(schema) {
      const now = await describe(database, schema)
      if (born === undefined || now.objects !== born.objects || spare.length >= mostSpare) {
        const drop = `drop schema if exists ${identifier(schema)} cascade`
        await database.run({ label: 'testing.drop', text: drop, values: [] })
        return
      }
      await database.run({ label: 'testing.empty', text: emptying(schema, now, born.filled), values: [] })
      spare.push(schema)
    },
  }
}

const mostSpare = 8

interface Description {
  readonly objects: string
  readonly tables: readonly string[]
  /** Tables with rows in them: in a new schema, those that migrations have put there. */
  readonly filled: ReadonlySet<string>
}

async function describe(database: Database, schema: string): Promise<Description> {
  const rows = await database.run<{ kind: string; name: string }>(sql`/* testing.describe */
    select relkind::text as kind, relname::text as name
    from pg_class
    where relnamespace = ${identifier(schema).quoted}::regnamespace
    union all
    select 'function', oid::regprocedure::text
    from pg_proc
    where pronamespace = ${identifier(schema).quoted}::regnamespace
    order by 1, 2`)
  const tables = rows.filter(({ kind }) => kind === 'r').map(({ name }) => name)
  const exist = tables.map(
    name => `select ${literal(name)} as name where exists (select from ${identifier(schema, name)})`,
  )
  const filled = await database.run<{ name: string }>({
    label: 'testing.filled',
    text: exist.join(' union all '),
    values: [],
  })
  const objects = rows.map(({ kind, name }) => `${kind} ${name.replaceAll(schema, '')}`).join('\n')
  return { objects, tables, filled: new Set(filled.map(({ name }) => name)) }
}

/** What has rows is deleted, not truncated: a truncated table gets new files, which takes longer than a store lives. */
function emptying(schema: string, { filled }: Description, kept: ReadonlySet<string>): string {
  const deletes = [...filled].filter(name => !kept.has(name)).map(name => `delete from ${identifier(schema, name)};`)
  return `do ${literal(`begin
  ${deletes.join('\n  ')}
  perform setval(s.seqrelid, s.seqstart, false)
    from pg_sequence as s
    join pg_class as c on c.oid = s.seqrelid
    where c.relnamespace = ${literal(identifier(schema).quoted)}::regnamespace;
end`)}`
}
