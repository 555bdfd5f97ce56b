/**
 * The target's sequences go on where the source's are, and above everything that was ever drawn from them: a position or
 * a fence that comes twice would be skipped by one reader and obeyed by another.
 */

import { consumerNames } from '../../consumers/schema.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { logNames } from '../../events/log.ts'
import type { Move } from './move.ts'

export async function carrySequences(source: Transaction, move: Move, target: Transaction): Promise<void> {
  const { schema } = move.source
  const sequences = await source.run<{ name: string }>(sql`/* moving.sequences */
    select c.relname::text as name
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema}::text
      and c.relkind = 'S'`)
  const used = await usedOf(source, schema)
  const carry = async ({ name }: { name: string }): Promise<void> => {
    const [drawn, there] = await Promise.all([drawnFrom(source, schema, name), drawnFrom(target, move.incoming, name)])
    const least = drawn > (used[name] ?? 0) ? drawn : used[name]!
    if (least <= there) return
    await target.run(sql`/* moving.set_sequence */
      select setval(${identifier(move.incoming, name).quoted}::text::regclass, ${least}::bigint)`)
  }
  await Promise.all(sequences.map(carry))
}

async function drawnFrom(executor: Executor, schema: string, sequence: string): Promise<number> {
  const [row] = await executor.run<{ drawn: number }>(sql`/* moving.drawn */
    select case when is_called then last_value else last_value - 1 end as drawn
    from ${identifier(schema, sequence)}`)
  return row!.drawn
}

/** What rows say was drawn, should a sequence be behind them. */
async function usedOf(source: Transaction, schema: string): Promise<Record<string, number>> {
  const { consumers } = consumerNames({ schema })
  const [row] = await source.run<Record<string, number>>(sql`/* moving.used */
    select
      greatest(
        (select coalesce(max(position), 0) from ${logNames(schema).events}),
        (select coalesce(max(checkpoint), 0) from ${consumers})) as events_position,
      (select coalesce(max(fence), 0) from ${consumers}) as consumers_fence`)
  return row!
}
