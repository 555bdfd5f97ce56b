/**
 * Looks for documents and events that are larger than any process reads. None is written by this version; those that are
 * there come from an earlier one, or from other programs.
 */

import { isRillflowError } from '../../core/errors.ts'
import { identifier, sql } from '../../database/sql.ts'
import { listLargeTables } from '../../documents/list-collections.ts'
import { maxReadBytes, textBytes } from '../../documents/size.ts'
import type { Log } from '../../events/log.ts'
import { maxReadBytes as largestEvent } from '../../events/read/rows.ts'
import type { Check, FoundProblem } from './doctor.ts'

/** A document of less on disk has at the utmost some hundred times as much text. */
const suspectBytes = 32_768
const maxNamed = 10
/** How much of each table is searched, and for how long. */
const [maxDocuments, maxEvents, budgetMs] = [20_000, 20_000, 5_000]

export function checkSizes(log: Log): Check[] {
  const { database, schema, names } = log
  const search = async (find: () => Promise<FoundProblem[]>): Promise<FoundProblem[]> =>
    find().catch(error => {
      // A table that takes longer to search is not a problem.
      if (isRillflowError(error, 'statement_cancelled') || isRillflowError(error, 'connection_lost')) return []
      throw error
    })
  return [
    {
      name: 'documents.too_large',
      ok: `No document that was looked at is too large to be read (${maxDocuments} of each collection).`,
      async find() {
        const found: FoundProblem[] = []
        for (const name of await listLargeTables(database, schema)) {
          const bytes = textBytes('body')
          const problems = await search(async () => {
            const rows = await database.run<{ id: string; bytes: number }>({
              label: 'doctor.large_documents',
              text: `/* doctor.large_documents */
                select id, bytes
                from (
                  select id, body
                  from ${identifier(schema, name)}
                  limit ${maxDocuments}) as d
                cross join lateral (
                  select ${bytes} as bytes
                  offset 0) as measured
                where pg_column_size(body) > ${suspectBytes}
                  and bytes > ${maxReadBytes}
                limit ${maxNamed}`,
              values: [],
              budgetMs,
            })
            return rows.map(({ id, bytes }) => ({
              level: 'error' as const,
              message: `Document ${JSON.stringify(id)} of collection ${name} takes ${bytes} bytes as it is read, and at most ${maxReadBytes} are read: lists return it without its data.`,
              fix: `Put it anew by its id, or delete it: rillflow documents delete ${name} ${id}`,
            }))
          })
          found.push(...problems)
        }
        return found
      },
    },
    {
      name: 'events.too_large',
      ok: `No event that was looked at is too large to be read (the newest ${maxEvents}).`,
      find: () =>
        search(async () => {
          const rows = await database.run<{ position: number; stream: string; bytes: number }>({
            ...sql`/* doctor.large_events */
              select position, stream, bytes
              from ${names.events}
              where bytes > ${largestEvent}::integer
                and position > (select coalesce(max(position), 0) from ${names.events}) - ${maxEvents}::bigint
              order by position
              limit ${maxNamed}::integer`,
            budgetMs,
          })
          return rows.map(({ position, stream, bytes }) => ({
            level: 'error' as const,
            message: `The event at position ${position} of stream ${JSON.stringify(stream)} takes ${bytes} bytes as it is read, and at most ${largestEvent} are read: reads return it without its data, and consumers set it aside.`,
            fix: `Take what is needed of it with SQL (data -> 'field'), append that to a new stream, and tombstone this one: rillflow streams tombstone ${stream}`,
          }))
        }),
    },
  ]
}
