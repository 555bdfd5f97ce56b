import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, shopEvents } from '../support/shop.ts'

test('SQL publishes an event, which runs handlers like any other', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (event, { emit }) => emit('OrderPaid', { method: event.data.total === 99 ? 'cash' : 'card' }),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  const [row] = await query<{ publish: string }>(`select ~publish('OrderPlaced', '{"total": 99}')`)
  const flow = flows.get(row!.publish)
  await flow.waitForEvent('OrderPaid')

  const events = await store.events.readAll({ correlationId: flow.correlationId }).toArray()
  expect(events.map(({ type, stream, data }) => [type, stream, data])).toEqual([
    ['OrderPlaced', `workflow-${flow.correlationId}`, { total: 99 }],
    ['OrderPaid', `workflow-${flow.correlationId}`, { method: 'cash' }],
  ])
  expect(events[0]).toMatchObject({ id: flow.correlationId, schemaVersion: 1, headers: {} })
})

test('a trigger publishes in the transaction that fires it, or not at all', async () => {
  const { store, query } = await openShop()
  await query('create table ~parcels (id text primary key, weight integer)')
  await query(`
    create function ~parcel_sent() returns trigger language plpgsql as $$
    begin
      perform ~publish('ParcelSent', to_jsonb(new), p_stream => 'parcel-' || new.id, p_user_id => 'ada',
        p_correlation_id => 'parcel-' || new.id, p_headers => '{"channel": "shop"}', p_schema_version => 2);
      return new;
    end $$`)
  await query(`create trigger sent after insert on ~parcels for each row execute function ~parcel_sent()`)

  await query(`insert into ~parcels values ('1', 5), ('2', 7)`)
  await query(`insert into ~parcels values ('3', 1), ('1', 2)`).catch(() => {})

  const events = await store.events.readAll().toArray()
  expect(events.map(({ stream, data }) => [stream, data])).toEqual([
    ['parcel-1', { id: '1', weight: 5 }],
    ['parcel-2', { id: '2', weight: 7 }],
  ])
  expect(events[0]).toMatchObject({
    ...{ version: 1, userId: 'ada', correlationId: 'parcel-1', schemaVersion: 2, headers: { channel: 'shop' } },
  })
})

test('SQL is refused with a sentence what a program would be refused, too', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  await store.streams.archive('order-1')

  const say = (call: string): Promise<unknown> => query(`select ~publish(${call})`).then(() => 'published', String)

  expect(await say(`''`)).toContain('The type of an event must be a text of 1 to 255 bytes.')
  expect(await say(`'OrderPaid', p_headers => '[]'`)).toContain('The headers of an event must be a JSON object.')
  expect(await say(`'OrderPaid', p_stream => 'order-1'`)).toContain('Stream "order-1" is archived.')
  expect(await store.events.head()).toBe(1)
})
