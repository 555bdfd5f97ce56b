/** Options that do not exist: every call refuses them and names the option that was probably meant. */
import { expect, test } from 'vitest'
import { defineConfig } from '../../src/config.ts'
import { defineCollection } from '../../src/documents/collection.ts'
import { openStore } from '../../src/store.ts'
import { openShop, outcome, paid } from '../support/shop.ts'

/** What a program in JavaScript gives, or one whose object has a wider type. */
function misspelt(option: string): never {
  return { [option]: 1 } as never
}

test('every call refuses an option that does not exist, and names the nearest', async () => {
  const customers = defineCollection('customers', { history: true })
  const { store } = await openShop({ collections: [customers] })
  const { events, streams, workflows, deadLetters, consumers, runners } = store
  const calls: Record<string, [wrong: string, meant: string, call: (options: never) => unknown]> = {
    openStore: ['ulr', 'url', given => openStore(given)],
    defineConfig: ['handler', 'handlers', given => defineConfig(given)],
    'store.start': ['onyl', 'only', given => store.start(given)],
    'store.events.append': ['expcted', 'expected', given => events.append('order-1', paid, given)],
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
