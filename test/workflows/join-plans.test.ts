/** Statements on batches never scan their tables, which contain closed batches until they are pruned. */
import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import type { Transaction } from '../../src/database/database.ts'
import { enqueue } from '../../src/workflows/dispatch/enqueue.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { moveBatches, recountBranches } from '../../src/workflows/joins/joins.ts'
import { loadRoutes } from '../../src/workflows/routes.ts'
import { openConsumerParts } from '../support/consumer-parts.ts'
import { type OrderChecks, openOrderChecks } from './order-checks.ts'

const tables = ['workflow_joins', 'workflow_join_entries', 'workflow_branches']

test('opening, arriving, ending and closing use their indexes, however many joins are closed already', async () => {
  const checks = await openOrderChecks()
  const { log } = openConsumerParts(checks)
  checks.flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => {} }))
  await checks.flows.sync()
  const [route] = await loadRoutes(log, log.database)
  await fill(checks, route!.id)

  const [before, after] = await checks.database.transaction(async tx => {
    const counted = await scansOf(tx, checks)
    const cause = { correlationId: 'order-1', position: 1 }
    for (const size of [1, 50]) {
      const id = randomUUID()
      const places = Array.from({ length: size }, (_, index) => [{ id, index, size }])
      const opened = [{ id, size, join: undefined, outer: [] }]
      const emitted = [{ ...cause, append: undefined, types: [], places, opened }]
      const arrivals = places.slice(1).map(batches => ({ ...cause, route: route!, batches }))
      const branches = places.map(batches => ({ ...cause, batches, change: -1, isFailed: false, emits: [] }))
      await moveBatches(log, tx, 'test', () => [route!], { branches: [], arrivals: [], emitted })
      const { joined } = await moveBatches(log, tx, 'test', () => [route!], { branches, arrivals, emitted: [] })
      await enqueue(log, tx, 'test', joined)
      await recountBranches(log, tx, 'test', joined, 1)
    }
    return [counted, await scansOf(tx, checks)]
  })

  expect(after!.sequential).toBe(before!.sequential)
  expect(after!.index).toBeGreaterThan(before!.index)
})

/** Two thousand joins of ten branches each. */
async function fill({ query }: OrderChecks, route: number): Promise<void> {
  await query(
    `insert into ~workflow_joins (position, id, batch_id, route, size, arrived, state, correlation_id)
    select n, md5('join' || n)::uuid, md5('batch' || n)::uuid, $1::integer, 10, 10, 'closed', 'order-' || n
    from generate_series(1, 2000) as n`,
    [route],
  )
  await query(`
    insert into ~workflow_join_entries (join_id, index, outcome, position)
    select md5('join' || n)::uuid, i, 'arrived', n from generate_series(1, 2000) as n, generate_series(0, 9) as i`)
  await query(`
    insert into ~workflow_branches (position, batch_id, index, open, size, correlation_id)
    select n, md5('batch' || n)::uuid, i, 0, 10, 'order-' || n
    from generate_series(1, 2000) as n, generate_series(0, 9) as i`)
  await query(
    "insert into ~workflows (correlation_id, first_position, last_position, last_type) values ('order-1', 1, 1, 'OrderPlaced')",
  )
  for (const table of tables) await query(`analyze ~${table}`)
}

/** The scans of the tables by this transaction so far. */
async function scansOf(tx: Transaction, { named }: OrderChecks): Promise<{ sequential: number; index: number }> {
  const [row] = await tx.query<{ sequential: string; index: string }>(
    named(`
      select sum(seq_scan)::text as sequential, sum(coalesce(idx_scan, 0))::text as index
      from pg_stat_xact_user_tables
      where relid in (${tables.map(table => `'~${table}'::regclass`).join(', ')})`),
  )
  return { sequential: Number(row!.sequential), index: Number(row!.index) }
}
