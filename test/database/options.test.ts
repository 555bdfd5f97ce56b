/** Options that do not exist: every call refuses them and names the option that was probably meant. */
import { expect, test } from 'vitest'
import { defineConfig } from '../../src/config.ts'
import { defineCollection } from '../../src/documents/collection.ts'
import { openStore } from '../../src/store.ts'
import { Order } from '../aggregates/orders.ts'
import { openShop, outcome, paid } from '../support/shop.ts'

/** What a program in JavaScript gives, or one whose object has a wider type. */
function misspelt(option: string): never {
  return { [option]: 1 } as never
}

test('every call refuses an option that does not exist, and names the nearest', async () => {
  const customers = defineCollection('customers', { history: true })
  const { store } = await openShop({ collections: [customers] })
  const { events, streams, workflows, deadLetters, consumers, runners } = store
  const documents = store.documents(customers)
  const id = '01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'
  const place = { type: 'Place', total: 1 } as const
  const calls: Record<string, [wrong: string, meant: string, call: (options: never) => unknown]> = {
    openStore: ['memroy', 'memory', given => openStore(given)],
    defineConfig: ['handler', 'handlers', given => defineConfig(given)],
    'store.start': ['onyl', 'only', given => store.start(given)],
    'store.events.append': ['expectedVersion', 'expected', given => events.append('order-1', paid, given)],
    'store.events.appendMany': ['idempotencyKy', 'idempotencyKey', given => events.appendMany([], given)],
    'store.events.read': ['form', 'from', given => events.read('order-1', given).toArray()],
    'store.events.readAll': ['type', 'types', given => events.readAll(given).toArray()],
    'store.events.tail': ['singal', 'signal', given => take(events.tail(given))],
    'store.events.waitFor': ['timeout', 'timeoutMs', given => events.waitFor(0, given)],
    'store.streams.list': ['afer', 'after', given => streams.list(given)],
    'store.handle': ['retrys', 'retries', given => store.handle(async () => {}, given)],
    'session.save': ['onRepeet', 'onRepeat', given => store.session().save(given)],
    'store.workflows.publish': ['steam', 'stream', given => workflows.publish('OrderPaid', { method: 'card' }, given)],
    'store.workflows.list': ['sate', 'state', given => workflows.list(given)],
    'store.workflows.attempts': ['handlr', 'handler', given => workflows.attempts(given)],
    'store.workflows.workers': ['limt', 'limit', given => workflows.workers(given)],
    'store.workflows.lanes.list': ['limt', 'limit', given => workflows.lanes.list(given)],
    'store.workflows.handlers.list': ['limt', 'limit', given => workflows.handlers.list(given)],
    'store.workflows.schedules.list': ['limt', 'limit', given => workflows.schedules.list(given)],
    'store.deadLetters.list': ['strem', 'stream', given => deadLetters.list(given)],
    'store.deadLetters.groups': ['sate', 'state', given => deadLetters.groups(given)],
    'store.deadLetters.stats': ['limt', 'limit', given => deadLetters.stats(given)],
    'store.deadLetters.retryAll': ['typ', 'type', given => deadLetters.retryAll(given)],
    'store.consumers.list': ['knd', 'kind', given => consumers.list(given)],
    'store.consumers.waitFor': ['timeoutMS', 'timeoutMs', given => consumers.waitFor('sales', 0, given)],
    'store.runners.list': ['limt', 'limit', given => runners.list(given)],
    'store.consumers.pause': ['grup', 'group', given => consumers.pause('sales', given)],
    'store.consumers.reset': ['grup', 'group', given => consumers.reset('sales', 0, given)],
    'store.consumers.remove': ['dropTable', 'dropTables', given => consumers.remove('sales', given)],
    'store.consumers.runUntilIdle': ['singal', 'signal', given => consumers.runUntilIdle(undefined, given)],
    'store.projections.rebuild': ['restrt', 'restart', given => store.projections.rebuild('sales', given)],
    'store.projections.switch': ['lifecycel', 'lifecycle', given => store.projections.switch('sales', given)],
    'store.subscriptions.create': ['grup', 'group', given => store.subscriptions.create('mailer', given)],
    'store.streams.archive': ['reson', 'reason', given => streams.archive('order-1', given)],
    'store.streams.tombstone': ['reson', 'reason', given => streams.tombstone('order-1', given)],
    'store.deadLetters.resolve': ['not', 'note', given => deadLetters.resolve('sales', id, given)],
    'store.deadLetters.retry': ['dat', 'data', given => deadLetters.retry('sales', id, given)],
    'store.workflows.executions.list': ['sate', 'state', given => workflows.executions.list(given)],
    'workflow.signal': [
      'steam',
      'stream',
      given => workflows.get('w-1').signal('OrderPaid', { method: 'card' }, given),
    ],
    'workflow.cancel': ['compenste', 'compensate', given => workflows.get('w-1').cancel(given)],
    'store.aggregates.load': ['verson', 'version', given => store.aggregates(Order).load('order-1', given)],
    'store.aggregates.handle': ['retrys', 'retries', given => store.aggregates(Order).handle('order-1', place, given)],
    'store.session': ['userID', 'userId', given => store.session(given)],
    'store.transaction': ['timeout', 'timeoutMs', given => store.transaction(async () => {}, given)],
    'store.doctor': ['lagMS', 'lagMs', given => store.doctor(given)],
    'store.upkeep': ['dryrun', 'dryRun', given => store.upkeep(given)],
    'store.export': ['outpt', 'output', given => store.export(given)],
    'store.import': ['inpt', 'input', given => store.import(given)],
    'store.backup': ['outpt', 'output', given => store.backup(given)],
    'store.server': ['prt', 'port', given => store.server(given)],
    'documents.get': ['includeDeletd', 'includeDeleted', given => documents.get('c-1', given)],
    'documents.put': ['expectedVersion', 'expected', given => documents.put('c-1', {}, given)],
    'documents.patch': ['expcted', 'expected', given => documents.patch('c-1', {}, given)],
    'documents.delete': ['expcted', 'expected', given => documents.delete('c-1', given)],
    'documents.putMany': ['partal', 'partial', given => documents.putMany([], given)],
    history: ['limt', 'limit', given => store.documents(customers).history('c-1', given)],
  }

  for (const [name, [wrong, meant, call]] of Object.entries(calls)) {
    const { error } = await outcome((async () => call(misspelt(wrong)))())
    expect(error, name).toMatchObject({ code: 'invalid_option', option: wrong })
    expect((error as Error).message, name).toContain(`Did you mean "${meant}"?`)
  }
})

async function take(events: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of events) return
}
