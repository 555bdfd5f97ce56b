/** A program that starts and migrates, four times over: `sync-process.ts URL SCHEMA` prints the steps each sync took. */
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { library } from '../../src/parts.ts'
import { openSchema } from '../../src/schema/schema.ts'
import { TableRegistry } from '../../src/schema/table.ts'

const [url, schema] = process.argv.slice(2)
const database = await openPostgres({ url: url! })
const syncs = Array.from({ length: 4 }, () =>
  openSchema(database, { schema: schema!, tables: new TableRegistry(), library }),
)
const plans = await Promise.all(syncs.map(each => each.sync()))
await database.close(1000)
process.stdout.write(JSON.stringify(plans.map(plan => plan.steps.length)))
