/** The call with which a worker claims executions, without the worker; from the sources, because it is not public. */

import { consumerNames } from '../../src/consumers/schema.ts'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { sql } from '../../src/database/sql.ts'
import { type Log, logNames } from '../../src/events/log.ts'
import { upcasters } from '../../src/events/read/upcast.ts'
import { openTelemetry } from '../../src/telemetry/telemetry.ts'
import { workflowNames } from '../../src/workflows/schema.ts'
import { claim, drawFences } from '../../src/workflows/work/claim.ts'

export interface Claimer extends AsyncDisposable {
  /** Returns the number of executions claimed. */
  claim(route: number, limit: number): Promise<number>
  /** Makes all claimed executions ready again, behind all others. */
  release(): Promise<unknown>
}

const owner = 'bench'

export async function openClaimer(url: string, schema: string): Promise<Claimer> {
  const database = await openPostgres({ url })
  // Only the parts that a claim uses, for events of the current schema version.
  const parts = { database, schema, names: logNames(schema), upcasters: upcasters([]), validateOnRead: false }
  const log = { ...parts, telemetry: openTelemetry() } as unknown as Log
  const names = workflowNames(log)
  const nextFence = drawFences(log)
  // Only a runner that has a row can claim.
  await database.run(sql`
    insert into ${consumerNames(log).runners} (
      id, fence, role, started_at, consumers, heartbeat_at, lease_ms, concurrency, routes)
    values (${owner}::text, 0, 'active', clock_timestamp(), '{}', clock_timestamp(), 3600000, 1, '{1}')
    on conflict do nothing`)
  return {
    async claim(route, limit) {
      const request = { owner, fence: await nextFence(), routes: [route], limit, ahead: 15, graceMs: 15_000 }
      return (await claim(log, request)).length
    },
    release: () =>
      database.run(sql`
        update ${names.workflow_executions}
        set state = 'ready',
          worker = null,
          rank = (extract(epoch from clock_timestamp()) * 1000)::bigint
        where worker = ${owner}::text`),
    [Symbol.asyncDispose]: () => database.close(1_000),
  }
}
