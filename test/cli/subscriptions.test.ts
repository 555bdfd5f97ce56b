import { beforeAll, expect, test } from 'vitest'
import { type Folder, onServer, openFolder, patienceMs, shopConfig } from './shop.ts'

let shop: Folder

beforeAll(async () => {
  shop = await openFolder({
    config: shopConfig,
    async seed(store) {
      for (let at = 1; at <= 3; at++) {
        await store.events.append(`order-${at}`, { type: 'OrderPlaced', data: { total: at } })
        await store.events.append(`order-${at}`, { type: 'OrderShipped', data: { parcel: `parcel-${at}` } })
      }
    },
  })
  if (onServer) expect(await shop.run('schema sync')).toMatchObject({ code: 0 })
}, patienceMs)

test('subscriptions are created, listed and described', async () => {
  await shop.shows('subscriptions create parcels --event-type OrderShipped --max-in-flight 5', {
    text: ['Created group default of parcels, which begins after position 0.'],
    json: { subscription: 'parcels', group: 'default', maxInFlight: 5, checkpoint: 0 },
  })
  await shop.shows('subscriptions list', {
    text: [/^SUBSCRIPTION +GROUPS +FILTER\nparcels +default +\{"types":\["OrderShipped"\]\}/],
    json: { items: [{ name: 'parcels', groups: ['default'] }] },
  })
  await shop.shows('subscriptions status parcels', {
    text: [/subscription +parcels\ngroup +default\nstate +stopped\ncheckpoint +0 of 6\nlag +6/],
    json: { subscription: 'parcels', lag: 6 },
  })
  await shop.shows('subscriptions groups parcels', {
    text: [/^GROUP +STATE .*\ndefault +stopped +0 +6 .* +5 +1 +0\n$/],
    json: { items: [{ group: 'default', maxInFlight: 5 }] },
  })
  await shop.shows('subscriptions status parcels --group default', {
    text: [/max in flight +5/],
    json: { group: 'default', head: 6 },
  })

  await shop.shows('subscriptions create parcels --event-type OrderShipped --start-from 3', {
    text: [
      'Group default of parcels exists already and keeps its checkpoint 0, 5 events in flight and 1 partition. To begin elsewhere: rillflow subscriptions reset parcels POSITION',
    ],
    json: { created: false, checkpoint: 0, maxInFlight: 5 },
  })
  const unknown = await shop.run('subscriptions status parcel')

  expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining('try: rillflow consumers list') })
})

test('subscriptions tail only reads, unless it is given --ack', async () => {
  await shop.shows('subscriptions tail parcels --limit 2', {
    text: [/order-1@2 +OrderShipped.*\n.*order-2@2 +OrderShipped.*\n$/],
    json: [{ stream: 'order-1' }, { stream: 'order-2' }],
    isNdjson: true,
  })

  const acked = await shop.run('subscriptions tail parcels --ack --limit 1 --json')
  const left = await shop.run('subscriptions tail parcels --json')

  expect(JSON.parse(acked.stdout)).toMatchObject({ stream: 'order-1' })
  expect(
    left.stdout
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line).stream),
  ).toEqual(['order-2', 'order-3'])
})

test('subscriptions are paused, resumed, limited and reset', async () => {
  await shop.shows('subscriptions pause parcels', { text: ['Paused parcels.'], json: [{ isPaused: true }] })
  await shop.shows('subscriptions resume parcels --group default', {
    text: ['Resumed group default of parcels.'],
    json: [{ isPaused: false }],
  })
  await shop.shows('subscriptions set-max-in-flight parcels 7', {
    text: ['Group default of parcels may have 7 events in flight.'],
    json: { maxInFlight: 7 },
  })
  await shop.shows('subscriptions reset parcels 4 --yes', {
    text: [/^Reset parcels from \d to 4\.\n$/],
    json: [{ checkpoint: 4 }],
  })

  const unasked = await shop.run('subscriptions reset parcels 0')

  expect(unasked).toMatchObject({ code: 2, stderr: expect.stringContaining('--yes') })
})

test('the number of partitions of a group is changed', async () => {
  expect(await shop.run('subscriptions create labels --from now')).toMatchObject({ code: 0 })

  await shop.shows('subscriptions repartition labels 2', {
    text: ['Group default of labels has 2 partitions.'],
    json: { partitions: [{ consumer: 'labels/default#0' }, { consumer: 'labels/default#1' }] },
  })
  await shop.shows('subscriptions status labels', {
    text: [/\nPARTITION .*\nlabels\/default#0 /],
    json: { group: 'default' },
  })
})

test('snapshots are written by the aggregates of the configuration', async () => {
  await shop.shows('snapshots metrics --threshold 2', {
    text: [/^SNAPSHOTTER +CANDIDATES +MAX GAP\nsnapshotter-order +3 +2\n$/],
    json: [{ snapshotter: 'snapshotter-order', candidates: 3, maxGap: 2 }],
  })

  const once = await shop.run('snapshots compact-once --threshold 2 --batch 2 --json')
  const idle = await shop.run('snapshots run-until-idle --threshold 2')

  expect(JSON.parse(once.stdout)).toMatchObject([{ result: 'processed', events: 2, written: 1 }])
  expect(idle.stdout).toMatch(/^SNAPSHOTTER +WRITTEN\nsnapshotter-order +2\n$/)
})

test('upcasters are read from the configuration without opening a store', async () => {
  const listed = await shop.run('upcasters list', { env: { DATABASE_URL: 'postgres://127.0.0.1:1/nowhere' } })
  const path = await shop.run('upcasters path OrderCreated 1')
  const json = await shop.run('upcasters path OrderCreated --json')

  expect(listed.stdout).toMatch(
    /^TYPE +FROM +TO TYPE +TO\nOrderCreated +1 +OrderOpened +1\nOrderOpened +1 +OrderOpened +2\n$/,
  )
  expect(path.stdout).toBe('OrderCreated v1 -> OrderOpened v1 -> OrderOpened v2\n')
  expect(JSON.parse(json.stdout)).toHaveLength(3)
})

test('runners are listed, and a runner that does not exist is an error', async () => {
  await shop.shows('runners list', { text: ['No runner is running.'], json: { items: [] } })

  const promoted = await shop.run('runners promote west-1')
  const demoted = await shop.run('runners demote west-1 --json')

  expect(promoted).toMatchObject({ code: 1, stderr: expect.stringContaining('try: rillflow runners list') })
  expect(JSON.parse(demoted.stderr)).toMatchObject({ error: { code: 'runner_not_found', runner: 'west-1' } })
})
