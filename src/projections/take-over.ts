/** Taking a projection's lease from whoever has it. The operator wins: a batch under way is refused by its fence. */
import { type Lease, newOwner } from '../consumers/lease.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'

/** Undefined if it is paused, or not active: then nobody works for it. */
export async function takeOver(log: Log, name: string, leaseMs: number): Promise<Lease | undefined> {
  const owner = newOwner(log)
  const [row] = await log.database.run<{ fence: bigint; checkpoint: bigint; attempts: number }>(
    sql`/* projections.take_over */
      update ${log.names.consumers}
      set owner = ${owner}::text,
        fence = nextval(${log.names.consumers_fence.quoted}::regclass),
        lease_until = clock_timestamp() + make_interval(secs => ${leaseMs}::float8 / 1000)
      where name = ${name}::text
        and state = 'active'
        and paused_at is null
      returning fence, checkpoint, attempts`,
  )
  return row === undefined ? undefined : { consumer: name, owner, ...row, retryInMs: 0 }
}
