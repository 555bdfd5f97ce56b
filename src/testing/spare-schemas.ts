/**
 * Schemas of closed test stores, emptied and used again: creating one runs all migrations, emptying one is a few deletes.
 * Tables that were added are dropped; a schema that was changed in any other way is dropped, too.
 */
import type { Database } from '../database/database.ts'
import { identifier, literal, sql } from '../database/sql.ts'
import { openStore } from '../store.ts'

export interface SpareSchemas {
  /** An empty one; if none is left, one that is made under this name. */
  take(name: string): Promise<string>
  /** Empties a schema and keeps it, or drops it. */
  release(schema: string): Promise<void>
}

export function spareSchemas(database: Database): SpareSchemas {
  const spare: string[] = []
  let born: NewSchema | undefined
  return {
    async take(name) {
      const known = spare.pop()
      if (known !== undefined) return known
      // Made without definitions: a store that has some stores rows when it is opened.
      await (await openStore({ database, schema: name, migrate: true })).close()
      born ??= await describeNew(database, name)
      return name
    },
    async release(schema) {
      if (born !== undefined && spare.length < maxSpare && (await restore(database, schema, born))) {
        spare.push(schema)
        return
      }
      const drop = `drop schema if exists ${identifier(schema)} cascade`
      await database.run({ label: 'testing.drop', text: drop, values: [] })
    },
  }
}

const maxSpare = 8
/** Of all tables: a large one is slow to empty, and stays slow to scan. */
const maxBytes = 2 * 1024 * 1024

interface Description {
  readonly objects: string
  readonly tables: readonly string[]
  readonly bytes: number
}

interface NewSchema extends Description {
  /** Tables that migrations have put rows into. */
  readonly filled: readonly string[]
  /** The number of rows in those. */
  readonly content: string
}

async function describeNew(database: Database, schema: string): Promise<NewSchema> {
  const description = await describe(database, schema)
  const filled = await filledOf(database, schema, description.tables)
  return { ...description, filled, content: await contentOf(database, schema, filled) }
}

/** Restores it to its new state; false if more than rows and tables was changed. */
async function restore(database: Database, schema: string, born: NewSchema): Promise<boolean> {
  let now = await describe(database, schema)
  if (now.bytes > maxBytes) return false
  const added = now.tables.filter(name => !born.tables.includes(name))
  if (added.length > 0) {
    const drop = `drop table ${added.map(name => identifier(schema, name)).join(', ')} cascade`
    await database.run({ label: 'testing.drop', text: drop, values: [] })
    now = await describe(database, schema)
  }
  const isAsBorn = now.objects === born.objects && (await contentOf(database, schema, born.filled)) === born.content
  if (!isAsBorn) return false
  const filled = await filledOf(database, schema, now.tables)
  const emptied = filled.filter(name => !born.filled.includes(name))
  await database.run({ label: 'testing.empty', text: emptying(schema, emptied), values: [] })
  if (born.tables.includes('counters')) {
    const text = `update ${identifier(schema, 'counters')} set value = 0`
    await database.run({ label: 'testing.reset', text, values: [] })
  }
  return true
}

async function describe(database: Database, schema: string): Promise<Description> {
  const rows = await database.run<{ kind: string; name: string; bytes: number }>(sql`/* testing.describe */
    select relkind::text as kind, relname::text as name, pg_relation_size(oid)::float8 as bytes
    from pg_class
    where relnamespace = ${identifier(schema).quoted}::regnamespace
    union all
    select 'column', format('%s.%s %s', c.relname, a.attname, a.atttypid::regtype), 0
    from pg_class as c
    join pg_attribute as a on a.attrelid = c.oid
    where c.relnamespace = ${identifier(schema).quoted}::regnamespace
      and c.relkind = 'r'
      and a.attnum > 0
      and not a.attisdropped
    union all
    select 'function', oid::regprocedure::text, 0
    from pg_proc
    where pronamespace = ${identifier(schema).quoted}::regnamespace
    union all
    select 'constraint', conname::text, 0
    from pg_constraint
    where connamespace = ${identifier(schema).quoted}::regnamespace
    order by 1, 2`)
  const tables = rows.filter(({ kind }) => kind === 'r').map(({ name }) => name)
  const objects = rows.map(({ kind, name }) => `${kind} ${name.replaceAll(schema, '')}`).join('\n')
  return { objects, tables, bytes: rows.reduce((sum, row) => sum + row.bytes, 0) }
}

async function filledOf(database: Database, schema: string, tables: readonly string[]): Promise<string[]> {
  const exist = tables.map(
    name => `select ${literal(name)} as name where exists (select from ${identifier(schema, name)})`,
  )
  const text = exist.join(' union all ')
  return (await database.run<{ name: string }>({ label: 'testing.filled', text, values: [] })).map(({ name }) => name)
}

async function contentOf(database: Database, schema: string, filled: readonly string[]): Promise<string> {
  const counts = filled.map(name => `(select count(*) from ${identifier(schema, name)})`)
  const [row] = await database.run<{ content: string }>({
    label: 'testing.content',
    text: `select concat_ws(' ', ${["''", ...counts].join(', ')}) as content`,
    values: [],
  })
  return row!.content
}

/** Rows are deleted, not truncated: a truncated table gets new files, which takes longer than a store lives. */
function emptying(schema: string, tables: readonly string[]): string {
  const deletes = tables.map(name => `delete from ${identifier(schema, name)};`)
  return `do ${literal(`begin
  ${deletes.join('\n  ')}
  perform setval(s.seqrelid, s.seqstart, false)
    from pg_sequence as s
    join pg_class as c on c.oid = s.seqrelid
    where c.relnamespace = ${literal(identifier(schema).quoted)}::regnamespace;
end`)}`
}
