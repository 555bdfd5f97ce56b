/** The call with which a worker takes work, made by itself; from the sources, since it is nobody's to call. */
import { openPostgres } from '../../src/database/postgres.ts'
import { sql } from '../../src/database/sql.ts'
import { type Log, logNames } from '../../src/events/log.ts'
import { upcasters } from '../../src/events/upcast.ts'
import { openTelemetry } from '../../src/telemetry/telemetry.ts'
import { claim } from '../../src/workflows/claim.ts'
import { drawFences } from '../../src/workflows/fences.ts'

export interface Claimer extends AsyncDisposable {
  /** Returns how many it got. */
  claim(route: number, limit: number): Promise<number>
  /** Makes all that it has ready again, behind all others. */
  giveBack(): Promise<unknown>
}

const owner = 'bench'

export async function openClaimer(url: string, schema: string): Promise<Claimer> {
  const database = await openPostgres({ url })
  const names = logNames(schema)
  // What a claim needs of it, for events that have their shape.
  const log = { database, schema, names, telemetry: openTelemetry(), upcasters: upcasters([]), validateOnRead: false }
  const nextFence = drawFences(log as unknown as Log)
  // Who is not known as a worker gets nothing.
  await database.run(sql`
    insert into ${names.workflow_workers} (owner, heartbeat_at, lease_ms, concurrency, routes)
    values (${owner}::text, clock_timestamp(), 3600000, 1, '{}')
    on conflict do nothing`)
  return {
    async claim(route, limit) {
      const request = { owner, fence: await nextFence(), routes: [route], limit, ahead: 15, graceMs: 15_000 }
      return (await claim(log as unknown as Log, request)).length
    },
    giveBack: () =>
      database.run(sql`
        update ${names.workflow_executions}
        set state = 'ready',
          worker = null,
          rank = (extract(epoch from clock_timestamp()) * 1000)::bigint
        where worker = ${owner}::text`),
    [Symbol.asyncDispose]: () => database.close(1_000),
  }
}
