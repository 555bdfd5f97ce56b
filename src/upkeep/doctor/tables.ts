/** Tables that vacuum does not keep up with, and transaction ids that run out. */
import { identifier, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Check } from './doctor.ts'

/** Fewer dead rows than this are nobody's trouble, whatever their share. */
const fewDead = 10_000
const deadShare = 0.3
/** PostgreSQL stops taking writes at two billion, and begins to hurry at its own limit, by default 200 million. */
const oldAge = 1_000_000_000

export function checkTables({ database, schema }: Log): Check[] {
  return [
    {
      name: 'tables.dead_rows',
      ok: 'Vacuum keeps up: no table is full of dead rows.',
      async find() {
        const rows = await database.run<{ name: string; dead: number; live: number }>(sql`/* doctor.dead_rows */
          select relname::text as name, n_dead_tup as dead, n_live_tup as live
          from pg_stat_user_tables
          where schemaname = ${schema}::text
            and n_dead_tup > ${fewDead}::bigint
            and n_dead_tup > ${deadShare}::float8 * (n_dead_tup + n_live_tup)
          order by n_dead_tup desc`)
        return rows.map(({ name, dead, live }) => ({
          level: 'warning' as const,
          message: `Table ${name} has ${dead} dead rows beside ${live} live ones.`,
          mend: `vacuum (analyze) ${identifier(schema, name)}. If it comes back: see transactions.old, and autovacuum's settings.`,
        }))
      },
    },
    {
      name: 'tables.age',
      ok: 'Transaction ids do not run out.',
      async find() {
        const [row] = await database.run<{ age: number }>(sql`/* doctor.age */
          select age(datfrozenxid) as age
          from pg_database
          where datname = current_database()`)
        if (row!.age < oldAge) return []
        return [
          {
            level: 'error',
            message: `The oldest transaction id of the database is ${row!.age} back; at two billion it takes no more writes.`,
            mend: 'vacuum (freeze), and see what holds it back: transactions.old, transactions.prepared, transactions.slots.',
          },
        ]
      },
    },
  ]
}
