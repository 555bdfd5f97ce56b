/** A program that migrates four times at once: `sync-process.ts URL SCHEMA` prints the number of steps of each sync. */
import { openPostgres } from '../../src/database/postgres.ts'
import { openSchema } from '../../src/schema/schema.ts'
import { TableRegistry } from '../../src/schema/table.ts'

const [url, schema] = process.argv.slice(2)
const database = await openPostgres({ url: url! })
const syncs = Array.from({ length: 4 }, () => openSchema(database, { schema: schema!, tables: new TableRegistry() }))
const plans = await Promise.all(syncs.map(each => each.sync()))
await database.close(1000)
process.stdout.write(JSON.stringify(plans.map(plan => plan.steps.length)))
