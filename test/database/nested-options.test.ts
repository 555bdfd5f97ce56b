/** A misspelt name inside an option is an error, too, wherever an option is an object. */
import { expect, test } from 'vitest'
import { defineAggregate } from '../../src/aggregates/aggregate.ts'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { openStore } from '../../src/store.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { emit } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, outcome, shopEvents } from '../support/shop.ts'
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
