/**
 * Fences for claims, drawn ahead of them and many at once: this is flushed to the disk, so that claims need not be. A fence
 * drawn in a claim that a crash of the server takes back could be drawn again.
 */
import { consumerNames } from '../../consumers/schema.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'

const drawnAtOnce = 256

/** Each call gives one that nobody else has or had. */
export function drawFences(log: Log): () => Promise<number> {
  let drawn: number[] = []
  return async () => {
    if (drawn.length === 0) {
      const rows = await log.database.runArrays(sql`/* workflows.fences */
        select nextval(${consumerNames(log).consumers_fence.quoted}::text::regclass)
        from generate_series(1, ${drawnAtOnce}::integer)`)
      drawn = rows.map(([fence]) => fence as number)
    }
    return drawn.pop()!
  }
}
