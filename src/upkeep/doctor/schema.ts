/** Checks the schema and its tables: whether they are as the library and the declarations made them, and vacuum. */
import { identifier, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { readTableFacts } from '../../schema/table-facts.ts'
import type { Check, DoctorParts } from './doctor.ts'

/** Fewer dead rows than this are not a problem, whatever their share. */
const minDeadRows = 10_000
const maxDeadShare = 0.3
/** PostgreSQL refuses writes at two billion, and freezes rows more urgently from 200 million on, by default. */
const maxAge = 1_000_000_000

export function checkSchema({ schema, log }: DoctorParts): Check[] {
  return [
    {
      name: 'schema',
      ok: 'The schema is as its migrations and declarations made it.',
      async find() {
        const { problems, newer } = await schema.check()
        const found = problems.map(({ object, problem, fix }) => ({
          level: 'error' as const,
          message: `In schema ${log.schema}, ${object} ${problem}.`,
          fix: `${fix}.`,
        }))
        const notCompared = newer.map(migration => ({
          level: 'warning' as const,
          message: `Schema ${log.schema} has ${migration} of a newer version of rillflow, so its objects were not compared.`,
          fix: 'Update rillflow in this program.',
        }))
        return [...found, ...notCompared]
      },
    },
  ]
}

export function checkTables({ database, schema }: Log): Check[] {
  return [
    {
      name: 'tables.dead_rows',
      ok: 'Vacuum keeps up: no table has too many dead rows.',
      async find() {
        const facts = [...(await readTableFacts(database, schema)).values()]
        const many = facts.filter(({ dead, live }) => dead > minDeadRows && dead > maxDeadShare * (dead + live))
        many.sort((a, b) => b.dead - a.dead)
        return many.map(({ name, dead, live }) => ({
          level: 'warning' as const,
          message: `Table ${name} has ${dead} dead rows and ${live} live rows.`,
          fix: `Run: vacuum (analyze) ${identifier(schema, name)}. If this comes back, look at transactions.old and at the settings of autovacuum.`,
        }))
      },
    },
    {
      name: 'tables.age',
      ok: 'The database has enough transaction ids left.',
      async find() {
        const [row] = await database.run<{ age: number }>(sql`/* doctor.age */
          select age(datfrozenxid) as age
          from pg_database
          where datname = current_database()`)
        const { age } = row!
        if (age < maxAge) return []
        return [
          {
            level: 'error',
            message: `The oldest transaction id of the database has the age ${age}. At two billion the database refuses writes.`,
            fix: 'Run: vacuum (freeze). Then look for the cause in the checks transactions.old, transactions.prepared and transactions.slots.',
          },
        ]
      },
    },
  ]
}
