/**
 * The functions of workflows never scan a table that grows. Their plans are made once, for any values, and kept: so they are
 * run on tables with many rows, and the server reports the tables it scanned.
 */
import { expect, test } from 'vitest'
import type { Transaction } from '../../src/database/database.ts'
import { openShop, type Shop } from '../support/shop.ts'

const grown = ['workflows', 'workflow_executions', 'workflow_activity', 'workflow_steps', 'dead_letters', 'events']

/** 20 000 workflows with an execution each: every fourth is ready, the others are parked, some in lanes. */
async function largeShop(): Promise<Shop> {
  const shop = await openShop()
  const { query } = shop
  await query(`insert into ~workflow_routes
      (id, handler, version, kind, priority, delay_ms, timeout_ms, start_position, digest, definition)
    values (1, 'ship', 1, 'handler', 0, 0, 30000, 0, '', '{"ordered": true}')`)
  await query(`insert into ~workflow_workers (owner, heartbeat_at, lease_ms, concurrency, routes)
    values ('worker', now(), 60000, 10, '{1}')`)
  await query(`insert into ~workflows (first_position, last_position, correlation_id, last_type, open)
    select n, n, 'checkout-' || n, 'OrderPlaced', 1
    from generate_series(1, 20000) as n`)
  await query(`insert into ~workflow_executions (position, rank, id, route, state, correlation_id, lane)
    select n, n, gen_random_uuid(), 1, case when n % 4 = 0 then 'ready' else 'parked' end, 'checkout-' || n,
      case when n % 8 = 0 then 'ship/' || n end
    from generate_series(1, 20000) as n`)
  await query(`insert into ~workflow_lanes (open, active, width, granted, ordered, lane)
    select 1, 1, 1, 1, true, 'ship/' || n
    from generate_series(8, 20000, 8) as n`)
  await query(`insert into ~workflow_activity
      (position, event_position, execution, version, attempt, kind, handler, correlation_id)
    select nextval('~workflow_activity_position'), x.position, x.id, 1, 0, 'dispatched', 'ship', x.correlation_id
    from ~workflow_executions as x`)
  await query(`insert into ~dead_letters
      (position, version, event_id, attempts, consumer, stream, type, errors, execution, correlation_id)
    select n, 1, gen_random_uuid(), 1, 'handler:ship', 'order-' || n, 'OrderPlaced', '[]', gen_random_uuid(),
      'checkout-' || n
    from generate_series(1, 5000) as n`)
  for (const table of [...grown, 'workflow_lanes']) await query(`analyze ~${table}`)
  return shop
}

/** One run of each function, on executions that the claim has returned. */
const calls: Record<string, string> = {
  claim: `create temp table claimed on commit drop as
    select (c.execution).id, (c.execution).fence, (c.execution).correlation_id, (c.execution).lane
    from ~workflow_claim(
      p_owner => 'worker', p_fence => 7, p_routes => '{1}', p_limit => 20, p_ahead => 4, p_grace_ms => 1000) as c`,
  complete: `select accepted
    from (
      select array_agg(id order by id) as ids, array_agg(fence) as fences, array_agg(distinct correlation_id) as correlations,
        array_agg(distinct lane) filter (where lane is not null) as lanes, count(*)::integer as n
      from claimed) as c
    cross join lateral ~workflow_complete(
      p_owner => 'worker', p_correlations => c.correlations, p_lanes => c.lanes, p_ids => c.ids, p_fences => c.fences,
      p_kinds => array_fill('done'::text, array[c.n]), p_recorded => array_fill('completed'::text, array[c.n]),
      p_outcomes => array_fill(null::text, array[c.n]), p_delays => array_fill(null::integer, array[c.n]),
      p_running_ms => array_fill(1, array[c.n]), p_results => null, p_errors => null, p_next => null, p_grace_ms => 0,
      p_clean => true)`,
  enqueue: `select enqueued
    from ~workflow_enqueue(
      p_owner => 'worker', p_ids => array[gen_random_uuid()], p_positions => '{1}', p_routes => '{1}',
      p_correlations => '{checkout-1}', p_states => '{ready}', p_lanes => '{ship/8}', p_joins => '{null}',
      p_undos => '{null}', p_letters => '{false}')`,
  wake: `select woken
    from ~workflow_wake(p_ids => array(select id from ~workflow_executions where correlation_id = 'checkout-2'))`,
  cancel: `select cancelled
    from ~workflow_cancel(
      p_owner => 'worker', p_correlation => 'checkout-16', p_dispatcher => 'workflows', p_state => 'cancelled',
      p_reason => null, p_except => null)`,
}

test('no function of workflows scans a table that grows', async () => {
  const { database, named } = await largeShop()

  await database.transaction(async tx => {
    for (const [name, call] of Object.entries(calls)) {
      const before = await scansOf(tx, named)
      await tx.query(named(call))
      expect(await scansOf(tx, named), name).toEqual(before)
    }
  })
})

/** Sequential scans of these tables by this connection, which it has not reported yet: only rises in a transaction. */
async function scansOf(tx: Transaction, named: Shop['named']): Promise<unknown> {
  return tx.query(
    named(`
      select relname::text as table, seq_scan::integer as scans
      from pg_stat_xact_user_tables
      where relid = any(array[${grown.map(table => `'~${table}'::regclass`).join(', ')}]::oid[])
      order by 1`),
  )
}
