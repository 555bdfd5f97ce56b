/** Every call of operators is in the audit: also those of tenants, and those that fail. */
import { expect, test } from 'vitest'
import { openShop, outcome, placed } from '../support/shop.ts'
import { callDefinitions, storeCalls } from '../support/store-calls.ts'
import { openTenantStore } from '../support/tenant-store.ts'

const nouns: Readonly<Record<string, string>> = {
  'workflows.get()': 'workflows',
  'workflows.handlers': 'handlers',
  'workflows.executions': 'executions',
  'workflows.lanes': 'lanes',
  'workflows.schedules': 'schedules',
}

/** The action of a call: `workflows.handlers.pause` is `handlers.pause`, and `upkeep` is `store.upkeep`. */
function actionOf(path: string): string {
  const at = path.lastIndexOf('.')
  if (at < 0) return `store.${path}`
  const noun = path.slice(0, at)
  return `${nouns[noun] ?? noun}${path.slice(at)}`
}

test('every call that operators make is recorded, with its actor, its time and its outcome', async () => {
  const { store } = await openShop({ ...callDefinitions, actor: 'ada' })
  store.documents('customers')
  await store.events.append('order-1', placed())
  const calls = [...storeCalls].filter(([, { kind }]) => ['operator', 'structure, recorded', 'recorded'].includes(kind))

  const missing: string[] = []
  for (const [path, { run }] of calls) {
    const { error } = await outcome((async () => run(store))())
    const { items } = await store.audit.list({ action: actionOf(path), limit: 1 })
    const [entry] = items
    const isEnded = entry !== undefined && entry.outcome !== 'running' && entry.endedAt !== undefined
    if (!isEnded || entry.actor !== 'ada' || (error !== undefined && entry.outcome !== 'failed')) missing.push(path)
  }

  expect(missing).toEqual([])
})

test('a call of an operator that fails is recorded with its error', async () => {
  const { store } = await openShop({ ...callDefinitions, projections: [] })
  const failing = [
    () => store.consumers.pause('no-such'),
    () => store.projections.rebuild('no-such'),
    () => store.workflows.handlers.retire('no-such'),
    () => store.workflows.schedules.trigger('no-such'),
    () => store.subscriptions.repartition('no-such', 2),
    () => store.import({ input: '/no/such/folder' }),
    () => store.schema.sync({ signal: AbortSignal.abort(), timeoutMs: 1 }),
  ]
  store.documents('customers')
  for (const call of failing) await expect(call()).rejects.toThrow()

  const { items } = await store.audit.list()
  expect(items.map(({ action, outcome: how, error }) => [action, how, error !== undefined]).reverse()).toEqual(
    ['consumers.pause', 'projections.rebuild', 'handlers.retire', 'schedules.trigger', 'subscriptions.repartition']
      .concat('store.import', 'schema.sync')
      .map(action => [action, 'failed', true]),
  )
})

/** What each call of `store.tenants` is for the audit. */
const tenantCalls = {
  recorded: ['ensure', 'drop', 'move', 'import', 'importFrom', 'addServer', 'rebalance'],
  inTheTenant: ['sync'],
  reading: ['exists', 'heads', 'list', 'status', 'export', 'servers'],
}

test('what operators do with tenants is recorded where it outlives the tenant, also what fails', async () => {
  const store = await openTenantStore({ actor: 'ada' })
  const { tenants } = store
  const names = Object.entries(tenants).filter(([, value]) => typeof value === 'function')
  expect(names.map(([name]) => name).sort()).toEqual(Object.values(tenantCalls).flat().sort())
  expect((await tenants.audit.list()).items).toEqual([])

  await tenants.ensure('acme')
  await tenants.ensure('acme')
  await tenants.drop('acme', { force: true })
  await expect(tenants.ensure('Not A Tenant')).rejects.toThrow()
  await expect(tenants.drop('acme', { force: true })).rejects.toMatchObject({ code: 'tenant_not_found' })
  await expect(tenants.drop('acme', {} as never)).rejects.toMatchObject({ code: 'force_required' })
  await expect(tenants.move('acme', { server: 'eu' })).rejects.toMatchObject({ code: 'tenancy_required' })
  await expect(tenants.addServer('eu', { url: 'postgres://u:secret@h/d' })).rejects.toThrow()
  await expect(tenants.import({ input: '/no/such/folder', tenant: 'acme' })).rejects.toThrow()
  await expect(tenants.importFrom('acme', { schema: 'no_such_schema', select: {} } as never)).rejects.toThrow()

  const { items } = await tenants.audit.list()
  expect(items.map(({ action, target, outcome: how, actor }) => [action, target, how, actor]).reverse()).toEqual([
    ['tenants.ensure', 'acme', 'done', 'ada'],
    ['tenants.drop', 'acme', 'done', 'ada'],
    ['tenants.ensure', 'Not A Tenant', 'failed', 'ada'],
    ['tenants.drop', 'acme', 'failed', 'ada'],
    ['tenants.drop', 'acme', 'failed', 'ada'],
    ['tenants.move', 'acme', 'failed', 'ada'],
    ['tenants.addServer', 'eu', 'failed', 'ada'],
    ['tenants.import', 'acme', 'failed', 'ada'],
    ['tenants.importFrom', 'acme', 'failed', 'ada'],
  ])
  expect(JSON.stringify(items)).not.toContain('secret')
  expect((await tenants.list()).items).toEqual([])
})

test('a sync of all tenants is recorded with each tenant that it has changed', async () => {
  const store = await openTenantStore()
  await store.tenants.ensure('acme')
  store.tenant('acme').documents('customers')

  await store.tenants.sync()
  await store.tenants.sync()

  const { items } = await store.tenant('acme').audit.list({ action: 'schema.sync' })
  expect(items).toMatchObject([{ outcome: 'done', result: { steps: expect.any(Number) } }])
})
