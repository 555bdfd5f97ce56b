/** How far a move is, from the two catalogues alone: no process has to remember anything. */

import type { Database } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { isIncoming } from './claim.ts'
import { MoveRefused } from './errors.ts'
import type { Move } from './move.ts'
import { occupantOf } from './moved-marker.ts'

/**
 * `not begun` and `copying`: the source has the store. `switched`: neither has, until it is activated. `active`: the target
 * has it.
 */
export type MoveState = 'not begun' | 'copying' | 'switched' | 'active'

export async function stateOf(move: Move): Promise<MoveState> {
  const { source, target, incoming } = move
  // In this order: what the source has given up it never takes back, so the answer is never ahead of the truth.
  const atSource = await occupantOf(source.database, source.schema)
  const comes = isIncoming(await markOf(target.database, incoming))
  if (atSource === 'live') return comes ? 'copying' : 'not begun'
  if (comes) return 'switched'
  if ((await occupantOf(target.database, target.schema)) === 'live') return 'active'
  throw new MoveRefused({
    schema: source.schema,
    reason: `there is no store of that name on either server (look for schema "${move.retired}" on the source)`,
  })
}

/** Whose the incoming schema is; undefined if there is none, or it has no mark. */
export async function markOf(database: Database, schema: string): Promise<string | undefined> {
  const [found] = await database.run<{ mark: string | null }>(sql`/* moving.mark_of */
    select obj_description(oid, 'pg_namespace') as mark
    from pg_namespace
    where nspname = ${schema}::text`)
  return found?.mark ?? undefined
}
