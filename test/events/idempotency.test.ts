import { expect, test } from 'vitest'
import { connect, onServer, openShop, outcome, paid, placed, shipped, waitersFor } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const id = '0190b2f0-6a1c-7def-8123-456789abcdef'

test('a repeat of a key returns the first outcome and stores nothing', async () => {
  const { store } = await openShop()
  const first = await store.events.append('order-42', [placed(), paid], { idempotencyKey: 'checkout-1' })
  await store.events.append('order-42', shipped())

  const again = await store.events.append('order-42', [placed(), paid], { idempotencyKey: 'checkout-1', expected: 0 })

  expect(first.repeated).toBe(false)
  expect(again).toEqual({ ...first, repeated: true })
  expect(await store.events.read('order-42').toArray()).toHaveLength(3)
})

test('content is compared, not its text: keys of objects in another order are equal', async () => {
  const { store } = await openShop()
  const idempotencyKey = 'checkout-1'
  await store.events.append('order-42', { type: 'OrderPlaced', data: { total: 1, note: 'x' } }, { idempotencyKey })

  const again = await store.events.append(
    'order-42',
    { type: 'OrderPlaced', data: { note: 'x', total: 1 }, headers: { channel: 'web' } },
    { idempotencyKey },
  )

  expect(again.repeated).toBe(true)
})

const differences: Record<string, [stream: string, events: Parameters<typeof outcome>[0] | object]> = {
  'other data': ['order-42', [placed(1), paid]],
  'another type': ['order-42', [placed(), shipped()]],
  'fewer events': ['order-42', [placed()]],
  'another stream': ['order-43', [placed(), paid]],
}

for (const [what, [stream, events]] of Object.entries(differences)) {
  test(`a key used again with ${what} is refused, and nothing is stored`, async () => {
    const { store } = await openShop()
    await store.events.append('order-42', [placed(), paid], { idempotencyKey: 'checkout-1' })

    const appending = store.events.append(stream, events as never, { idempotencyKey: 'checkout-1' })

    await expect(appending).rejects.toMatchObject({ code: 'idempotency_mismatch', key: 'checkout-1' })
    expect(await store.events.readAll().toArray()).toHaveLength(2)
  })
}

test('with onRepeat: error a repeat is refused, and the first append stays', async () => {
  const { store } = await openShop()
  const once = { idempotencyKey: 'checkout-1', onRepeat: 'error' } as const
  await store.events.append('order-42', placed(), once)

  await expect(store.events.append('order-42', placed(), once)).rejects.toMatchObject({ code: 'idempotency_conflict' })
  await expect(store.events.append('order-42', placed(1), once)).rejects.toMatchObject({
    code: 'idempotency_mismatch',
  })
  expect(await store.events.read('order-42').toArray()).toHaveLength(1)
})

test('the key of a refused append can be used again', async () => {
  const { store } = await openShop()
  const idempotencyKey = 'checkout-1'
  const refused = store.events.append('order-42', placed(1), { idempotencyKey, expected: 5 })
  await expect(refused).rejects.toMatchObject({ code: 'version_conflict' })

  const result = await store.events.append('order-42', placed(2), { idempotencyKey })

  expect(result).toMatchObject({ version: 1, repeated: false })
})

test('a key covers several streams', async () => {
  const { store } = await openShop()
  const streams = [
    { stream: 'order-1', events: [placed(), paid] },
    { stream: 'stock-1', events: shipped() },
  ]
  const first = await store.events.appendMany(streams, { idempotencyKey: 'checkout-1' })

  const again = await store.events.appendMany(streams, { idempotencyKey: 'checkout-1' })

  expect(again).toEqual(first.map(result => ({ ...result, repeated: true })))
  expect(await store.events.readAll().toArray()).toHaveLength(3)
})

test('concurrent calls with one key, from two stores, store it once and all get that outcome', async () => {
  const { store, sibling } = await openShop()
  const second = await sibling()

  for (let round = 0; round < 5; round++) {
    const stream = `order-${round}`
    const results = await Promise.all(
      Array.from({ length: 10 }, (_, n) =>
        (n % 2 === 0 ? store : second).events.append(stream, [placed(), paid], { idempotencyKey: `checkout-${round}` }),
      ),
    )

    expect(results.filter(result => !result.repeated)).toHaveLength(1)
    expect(new Set(results.map(result => result.eventIds.join())).size).toBe(1)
    expect(await store.events.read(stream).toArray()).toHaveLength(2)
  }
})

test('a refused call with a key does not change the outcome of its twin in the same group', async () => {
  const { store } = await openShop()
  await store.events.append('order-42', placed())
  const append = () => outcome(store.events.append('order-42', paid, { idempotencyKey: 'pay-1', expected: 'empty' }))

  const outcomes = await Promise.all([append(), append(), append(), append()])

  expect(outcomes.map(each => (each.error as { code: string }).code)).toEqual(Array(4).fill('version_conflict'))
})

test('a key survives repeats with its own event ids, however many', async () => {
  const { store } = await openShop()
  const idempotencyKey = 'checkout-1'
  const first = await store.events.append('order-42', placed(1, { id }), { idempotencyKey })
  await store.events.append('order-42', placed(1, { id }), { idempotencyKey })
  await expect(store.events.append('order-42', placed(2, { id }), { idempotencyKey })).rejects.toMatchObject({
    code: 'idempotency_mismatch',
  })

  const again = await store.events.append('order-42', placed(1), { idempotencyKey })

  expect(again).toEqual({ ...first, repeated: true })
  expect(await store.events.read('order-42').toArray()).toHaveLength(1)
})

test('a repeat of a key is recognized, also if only some of its events have their original ids', async () => {
  const { store } = await openShop()
  const idempotencyKey = 'checkout-1'
  const first = await store.events.append('order-42', [placed(1, { id }), paid], { idempotencyKey })

  const again = await store.events.append('order-42', [placed(1, { id }), paid], { idempotencyKey })

  expect(again).toEqual({ ...first, repeated: true })
})

test('with onRepeat: error a repeat with its own event ids is refused as well', async () => {
  const { store } = await openShop()
  const once = { idempotencyKey: 'checkout-1', onRepeat: 'error' } as const
  await store.events.append('order-42', placed(1, { id }), once)

  const again = store.events.append('order-42', placed(1, { id }), once)

  await expect(again).rejects.toMatchObject({ code: 'idempotency_conflict' })
})

test('a key works inside a transaction, and is rolled back with it', async () => {
  const { store } = await openShop()
  const idempotencyKey = 'checkout-1'
  const failed = store.transaction(async tx => {
    await store.events.append('order-42', placed(1), { idempotencyKey, tx })
    throw new Error('card declined')
  })
  await expect(failed).rejects.toThrow('card declined')

  const results = await store.transaction(async tx => [
    await store.events.append('order-42', placed(2), { idempotencyKey, tx }),
    await store.events.append('order-42', placed(2), { idempotencyKey, tx }),
  ])

  expect(results).toMatchObject([
    { version: 1, repeated: false },
    { version: 1, repeated: true },
  ])
})

test('an invalid key is refused', async () => {
  const { store } = await openShop()

  for (const idempotencyKey of ['', 'x'.repeat(256), 'a\0b', 42]) {
    const appending = store.events.append('order-42', placed(), { idempotencyKey: idempotencyKey as string })

    await expect(appending).rejects.toMatchObject({ code: 'invalid_name', what: 'Idempotency key' })
  }
})

if (onServer) {
  test('an append waits for a key that another transaction is using, and other appends do not wait', async () => {
    const { store, named } = await openShop()
    const client = await connect()
    await client.query('begin')
    await client.query(
      named(`insert into ~idempotency_keys (key, digest, event_ids) values ('checkout-1', 'other', '{}')`),
    )

    const waiting = outcome(store.events.append('order-42', placed(), { idempotencyKey: 'checkout-1' }))
    const others = await Promise.all(Array.from({ length: 30 }, (_, n) => store.events.append(`order-${n}`, placed(n))))
    await waitUntil(async () => (await waitersFor(client)) === 1)
    await client.query('rollback')

    expect(others).toHaveLength(30)
    expect((await waiting).value).toMatchObject({ version: 1, repeated: false })
  })
}
