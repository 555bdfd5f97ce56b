/** Rows of the activity written by hand, like those of executions: announce, draw, insert. */
import type pg from 'pg'
import { nextActivity } from '../support/numbers.ts'
import type { Shop } from '../support/shop.ts'

export function insertActivity({ named }: Pick<Shop, 'named'>, count: number, correlationId = 'order-1'): string {
  return named(`
    insert into ~workflow_activity
      (position, event_position, execution, version, attempt, kind, handler, correlation_id)
    select ${nextActivity}, 1, gen_random_uuid(), 1, 0, 'dispatched', 'pay', '${correlationId}'
    from generate_series(1, ${count})`)
}

/** In one transaction of the shop's database. */
export async function writeActivity(shop: Shop, count: number, correlationId?: string): Promise<void> {
  await shop.database.transaction(async tx => {
    await tx.query(shop.named('select ~workflow_announce()'))
    await tx.query(insertActivity(shop, count, correlationId))
  })
}

/** On a separate connection, which stays inside the transaction. */
export async function beginActivity(shop: Shop, client: pg.Client, count: number): Promise<void> {
  await client.query('begin')
  await client.query(shop.named('select ~workflow_announce()'))
  await client.query(insertActivity(shop, count))
}

export async function positionsOf({ query }: Pick<Shop, 'query'>): Promise<number[]> {
  const rows = await query<{ position: number }>('select position from ~workflow_activity order by position')
  return rows.map(row => row.position)
}
