/** A misspelt name inside an option is an error, too, wherever an option is an object. */
import { expect, test } from 'vitest'
import { defineAggregate } from '../../src/aggregates/aggregate.ts'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { openStore } from '../../src/store.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { emit } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, outcome, placed, shopEvents } from '../support/shop.ts'
import { openTenantStore } from '../support/tenant-store.ts'

const events = shopEvents
const handler = (more: object) => () =>
  defineHandler('ship', { events, on: 'OrderPlaced', run: () => {}, ...more } as never)

/** What is called, the misspelt name, and the one that was meant. */
const definitions: [() => unknown, string, string][] = [
  [handler({ backoff: { baseMS: 1 } }), 'baseMS', 'baseMs'],
  [handler({ rate: { limit: 1, perMS: 1 } }), 'perMS', 'perMs'],
  [handler({ concurrency: { perkey: 1, key: () => '' } }), 'perkey', 'perKey'],
  [
    () => defineProcessor('p', { events, on: { OrderPlaced: () => {} }, breaker: { failure: 1 } } as never),
    'failure',
    'failures',
  ],
  [
    () =>
      defineProcessor('p', { events, on: { OrderPlaced: () => {} }, byType: { OrderPlaced: { retrys: 1 } } } as never),
    'retrys',
    'retries',
  ],
  [
    () =>
      defineProcessor('p', {
        events,
        on: { OrderPlaced: () => {} },
        byType: { OrderPlaced: { backoff: { facto: 1 } } },
      } as never),
    'facto',
    'factor',
  ],
  [() => defineSubscription('s', { events, run: () => {}, backoff: { jiter: 1 } } as never), 'jiter', 'jitter'],
  [
    () => defineAggregate('a', { events, initial: () => 0, evolve: {}, snapshots: { evry: 1 } } as never),
    'evry',
    'every',
  ],
  [() => emit('OrderPlaced', {}, { steam: 'order-1' } as never), 'steam', 'stream'],
]

const stores: [object, string, string][] = [
  [{ memory: true, retention: { auditMS: 1 } }, 'auditMS', 'auditMs'],
  [{ memory: true, workflows: { maxHop: 1 } }, 'maxHop', 'maxHops'],
  [{ memory: true, sessionDefaults: { userID: 'ada' } }, 'userID', 'userId'],
  [{ url: 'postgres://127.0.0.1:1/x', password: { enf: 'P' } }, 'enf', 'env'],
  [{ tenancy: { directory: 'postgres://127.0.0.1:1/x', server: {} } }, 'server', 'servers'],
]

test('unknown names inside the options of definitions are refused, with the nearest name', async () => {
  for (const [define, option, meant] of definitions) {
    const { error } = await outcome((async () => define())())
    expect(error, option).toMatchObject({
      code: 'invalid_option',
      option,
      message: expect.stringContaining(`"${meant}"`),
    })
  }
})

test('unknown names inside the options of a store are refused, with the nearest name', async () => {
  for (const [options, option, meant] of stores) {
    const { error } = await outcome(openStore(options as never))
    expect(error, option).toMatchObject({
      code: 'invalid_option',
      option,
      message: expect.stringContaining(`"${meant}"`),
    })
  }
})

test('unknown names in the options of calls are refused, with the nearest name', async () => {
  const { store } = await openShop()
  const { tenants, start } = await openTenantStore()
  const calls: [() => Promise<unknown>, string, string][] = [
    [
      () => store.register(defineProjection('p', { events, on: { OrderPlaced() {} }, backoff: { maxMS: 1 } } as never)),
      'maxMS',
      'maxMs',
    ],
    [() => store.start({ onli: [] } as never), 'onli', 'only'],
    [() => start({ tenant: [] } as never), 'tenant', 'tenants'],
    [() => tenants.ensure('acme', { servr: 'eu' } as never), 'servr', 'server'],
    [() => tenants.sync({ tenant: [] } as never), 'tenant', 'tenants'],
    [() => tenants.drop('acme', { forced: true } as never), 'forced', 'force'],
    [() => tenants.import({ inputs: 'x' } as never), 'inputs', 'input'],
    [() => tenants.addServer('eu', { urls: 'x' } as never), 'urls', 'url'],
    [() => store.subscriptions.repartition('s', 2, { timeoutMS: 1 } as never), 'timeoutMS', 'timeoutMs'],
    [() => store.states.blame('order', 'order-1', { versoin: 1 } as never), 'versoin', 'version'],
    [() => store.workflows.get('w').tree({ limits: 1 } as never), 'limits', 'limit'],
    [() => store.trace(async () => {}, { maxCrumb: 1 } as never), 'maxCrumb', 'maxCrumbs'],
    [() => store.server({ port: 0, tokn: 'x' } as never), 'tokn', 'token'],
    [async () => store.documents('c', { indexes: [{ path: 'a', uniqe: true }] } as never), 'uniqe', 'unique'],
    [async () => store.documents('d', { search: { feilds: ['a'] } } as never), 'feilds', 'fields'],
  ]

  for (const [call, option, meant] of calls) {
    const { error } = await outcome(call())
    expect(error, option).toMatchObject({
      code: 'invalid_option',
      option,
      message: expect.stringContaining(`"${meant}"`),
    })
  }
})

test('calls on documents, queries, sessions and workflows refuse options that they do not have', async () => {
  const { store } = await openShop()
  const customers = store.documents<{ name: string }>('customers')
  const session = store.session()
  const inSession = session.documents(customers as never)
  const typo = { expcted: 3 } as never
  const calls: Record<string, () => unknown> = {
    insert: () => customers.insert({ name: 'Ada' }, typo),
    'insert with an id': () => customers.insert('ada', { name: 'Ada' }, typo),
    batch: () => customers.batch(typo),
    'batch.put': () => customers.batch().put('ada', { name: 'Ada' }, typo),
    'batch.delete': () => customers.batch().delete('ada', typo),
    flush: () => customers.batch().flush(typo),
    toArray: () => customers.query().toArray(typo),
    count: () => customers.query().count(typo),
    page: () => customers.query().page(typo),
    iterate: () => customers.query().iterate(typo)[Symbol.asyncIterator]().next(),
    explain: () => customers.query().explain(typo),
    orderBy: () => customers.query().orderBy(c => c.name, typo),
    'session.events.append': () => session.events.append('order-1', placed(), typo),
    'session.publish': () => session.publish('OrderPlaced', { total: 1 }, typo),
    'session.load': () => inSession.load('ada', typo),
    'session.put': () => inSession.put('ada', {}, typo),
    'session.delete': () => inSession.delete('ada', typo),
    'a part of appendMany': () =>
      store.events.appendMany([{ stream: 'order-1', events: placed(), ...(typo as object) }]),
    import: () => store.events.import([], typo),
    retire: () => store.workflows.handlers.retire('charge', typo),
    unpark: () => store.workflows.lanes.unpark('charge', typo),
    'schema.sync': () => store.schema.sync(typo),
    explainWorkflow: () => store.explain({ workflow: 'w', ...(typo as object) }),
  }

  for (const [name, call] of Object.entries(calls)) {
    const { error } = await outcome((async () => call())())
    expect(error, name).toMatchObject({ code: 'invalid_option', option: 'expcted' })
  }
  const { error } = await outcome((async () => inSession.put('ada', {}, typo))())
  expect(error).toMatchObject({ message: expect.stringContaining('Did you mean "expected"?') })
})
