/** Views of workflows use indexes: no page, count or status scans a table that grows. */
import { expect, test } from 'vitest'
import type { Statement } from '../../src/database/sql.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openDatabase } from '../support/engines.ts'
import { explain, recording } from '../support/query-plans.ts'
import { openShop, placed, type Shop, take } from '../support/shop.ts'

const indexesOf: Record<string, string[]> = {
  'workflows.activity': ['workflow_activity_pkey'],
  'workflows.activity_of_one': ['workflow_activity_correlation'],
  'workflows.activity_before': ['workflow_activity_pkey'],
  'workflows.activity_of_one_before': ['workflow_activity_correlation'],
  'workflows.retrying': ['workflow_executions_idle'],
  'workflows.list_by_attributes': ['workflows_attributes'],
  'workflows.attempts': ['workflow_activity_pkey'],
  'workflows.attempts_of_one': ['workflow_activity_correlation'],
  'workflows.attempts_of_handler': ['workflow_activity_handler'],
  'workflows.list': ['workflows_first_position'],
  'workflows.list_children': ['workflows_parent'],
  'workflows.status': [
    'workflows_pkey',
    'workflow_executions_correlation',
    'dead_letters_correlation',
    'events_correlation',
  ],
  'workflows.count_open': ['workflow_executions_ready', 'workflow_executions_worker', 'workflow_executions_idle'],
  'workflows.count_dead_letters': ['dead_letters_state'],
  'workflows.failed': ['dead_letters_correlation'],
}

/** Thousands of workflows, most of them ended, and all statements sent from now on. */
async function openLarge(): Promise<Shop & { sent: Map<string, Statement> }> {
  const sent = new Map<string, Statement>()
  const database = recording(await openDatabase(), statement => sent.set(statement.label, statement))
  const shop = await openShop({ database })
  const { store, query } = shop
  store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  await store.workflows.sync()
  const events = Array.from({ length: 5_000 }, (_, n) => ({
    ...{ stream: `order-${n % 1000}`, ...placed(n), correlationId: `checkout-${n % 2500}` },
  }))
  await store.events.import(events)
  await query(`
    insert into ~workflows (correlation_id, first_position, last_position, last_type, parent)
    select 'checkout-' || n, n + 1, n + 1, 'OrderPlaced', case when n % 2 = 0 then 'checkout-' || n / 100 end
    from generate_series(0, 4999) as n`)
  await query(`
    insert into ~workflow_activity (position, event_position, execution, version, attempt, kind, handler, correlation_id)
    select nextval('~workflow_activity_position'), 1 + n % 5000, gen_random_uuid(), 1, 1,
      (array['dispatched', 'started', 'completed'])[1 + n % 3], 'h' || n % 50, 'checkout-' || n % 2500
    from generate_series(1, 15000) as n`)
  await query(`
    insert into ~workflow_executions (id, position, route, correlation_id, rank, state, worker)
    select gen_random_uuid(), 1 + n % 5000, 1 + n % 40, 'checkout-' || n % 2500, n,
      (array['ready', 'delayed', 'suspended', 'blocked', 'running'])[1 + n % 5], case when n % 5 = 4 then 'w' end
    from generate_series(1, 5000) as n`)
  await query(`
    insert into ~dead_letters
      (consumer, event_id, position, stream, version, type, attempts, errors, correlation_id, state)
    select case when n % 10 = 0 then 'handler:h1' else 'totals' end, gen_random_uuid(), n, 's', 1, 'OrderPlaced', 1,
      '[{"message": "no"}]', case when n % 10 = 0 then 'checkout-' || n end,
      (array['open', 'retrying', 'replayed', 'resolved'])[1 + n / 10 % 4]
    from generate_series(1, 3000) as n`)
  await query(`update ~workflows set attributes = jsonb_build_object('customer', 'c-' || first_position % 500)`)
  for (const table of ['events', 'workflows', 'workflow_activity', 'workflow_executions', 'dead_letters'])
    await query(`analyze ~${table}`)
  sent.clear()
  return { ...shop, sent }
}

test('every view is read through its index, whatever values it was planned for', async () => {
  const { store, sent, database } = await openLarge()
  const flows = store.workflows
  await take(flows.watch({ from: 14_000, handler: 'h7' }), 1)
  await take(flows.get('checkout-7').watch(), 1)
  await flows.attempts({ outcome: 'completed' })
  await flows.attempts({ correlationId: 'checkout-7' })
  await flows.attempts({ handler: 'h7' })
  await flows.list({ limit: 20 })
  await flows.list({ parent: 'checkout-7', limit: 20 })
  await flows.get('checkout-7').status()
  await flows.stats()
  await flows.activity({ limit: 20 })
  await flows.get('checkout-7').activity({ before: 'now', limit: 20 })
  await flows.list({ isRetrying: true, limit: 20 })
  await flows.list({ attributes: { customer: 'c-7' }, limit: 20 })
  await flows.list({ hasDeadLetters: true, limit: 20 })

  for (const [label, indexes] of Object.entries(indexesOf)) {
    const statement = sent.get(label)
    expect(statement, label).toBeDefined()
    for (const mode of ['force_custom_plan', 'force_generic_plan']) {
      const plan = await database.transaction(tx => explain(tx, statement!, mode))

      expect(plan, `${label}, ${mode}`).not.toMatch(/Seq Scan on (events|workflows|workflow_activity|dead_letters)\b/)
      expect(plan, `${label}, ${mode}`).not.toMatch(/Seq Scan on workflow_executions/)
      for (const index of indexes) expect(plan, `${label}, ${mode}`).toContain(index)
    }
  }
})
