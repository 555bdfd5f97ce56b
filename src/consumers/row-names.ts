/**
 * The names of rows. Most consumers have one row, of their own name. One that is divided, as a subscription is, has a row
 * for each partition of each of its groups:
 *
 *     sales                      a projection
 *     mailer/default             a subscription: its group 'default', which is not divided
 *     mailer/eu#0, mailer/eu#1   its group 'eu', in two partitions
 *
 * Characters with a meaning are written as in a URL, so no two groups share a row.
 */
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { consumerNames } from './schema.ts'

export interface Group {
  readonly name: string
  readonly group: string
}

/** The rows of a group with so many partitions. */
export function rowNames({ name, group }: Group, partitions: number): string[] {
  const whole = groupKey({ name, group })
  return partitions === 1 ? [whole] : Array.from({ length: partitions }, (_, index) => `${whole}#${index}`)
}

/** The consumer and the group that the row of a divided consumer belongs to. */
export function groupOf(row: string): Group {
  const [name = '', group = ''] = row.replace(/#\d+$/, '').split('/').map(decodeURIComponent)
  return { name, group }
}

/** Rows with the same key belong together. */
export function groupKey({ name, group }: Group): string {
  return `${escaped(name)}/${escaped(group)}`
}

/**
 * The rows of a divided consumer: of one group, or of all, in the order of their names. With a transaction they are
 * locked until it ends.
 */
export async function readRows(log: Log, name: string, group: string | undefined, tx?: Executor): Promise<string[]> {
  const [prefix, whole] =
    group === undefined ? [`${escaped(name)}/`, ''] : [`${groupKey({ name, group })}#`, groupKey({ name, group })]
  const { consumers } = consumerNames(log)
  const rows =
    tx === undefined
      ? await log.database.run<{ name: string }>(sql`/* consumers.rows */
          select name
          from ${consumers}
          where kind = 'subscription'
            and (name = ${whole}::text or starts_with(name, ${prefix}::text))
          order by name`)
      : await tx.run<{ name: string }>(sql`/* consumers.lock_rows */
          select name
          from ${consumers}
          where kind = 'subscription'
            and (name = ${whole}::text or starts_with(name, ${prefix}::text))
          order by name
          for update`)
  return rows.map(row => row.name)
}

function escaped(name: string): string {
  return name.replaceAll(/[%/#]/g, encodeURIComponent)
}
