/**
 * Deletes dead letters: closed ones when they are old (retention), and those of events that are deleted from the log.
 * An open dead letter is never old.
 */
import type { Executor } from '../../database/database.ts'
import type { OldRows } from '../../database/prune.ts'
import { type Fragment, fragment, type Identifier, identifier, sql } from '../../database/sql.ts'
import type { Log, LogNames } from '../../events/log.ts'

/** Dead letters that were replayed or resolved long ago. The last entry of the history is the one that closed it. */
export function oldDeadLetters({ names }: Pick<Log, 'names'>): OldRows {
  return {
    label: 'dead_letters.prune',
    table: names.dead_letters,
    key: ['consumer', 'event_id'],
    where: `t.state in ('replayed', 'resolved')
        and coalesce((t.history -> -1 ->> 'at')::timestamptz, t.last_failed_at) < $1`,
  }
}

/** Deletes the dead letters of events after a position: the log was cut there. */
export async function deleteDeadLettersAfter(names: LogNames, tx: Executor, position: number): Promise<void> {
  await tx.run(sql`/* dead_letters.cut */
    delete from ${names.dead_letters}
    where position > ${position}::bigint`)
}

/** True if there is an open dead letter of a stream, or of a correlation id. */
export function hasOpenDeadLetter(names: LogNames, column: 'stream' | 'correlation_id', value: Identifier): Fragment {
  return fragment`exists (
        select
        from ${names.dead_letters} as d
        where d.${identifier(column)} = ${value}
          and d.state in ('open', 'retrying'))`
}
