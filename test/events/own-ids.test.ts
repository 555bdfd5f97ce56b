import { expect, test } from 'vitest'
import { openShop, outcome, paid, placed } from '../support/shop.ts'

const id = '0190B2F0-6a1c-7def-8123-456789abcdef'
const other = '0190b2f0-6a1c-7def-8123-000000000002'

test('an event keeps the id it was given, in the form the database returns', async () => {
  const { store } = await openShop()

  const result = await store.events.append('order-42', placed(99, { id }))

  expect(result.eventIds).toEqual([id.toLowerCase()])
  expect(await store.events.has(id)).toBe(true)
  expect((await store.events.get(id))!.id).toBe(id.toLowerCase())
})

test('a repeat with the same ids and content returns the first outcome, whatever version it expects', async () => {
  const { store } = await openShop()
  const events = [placed(99, { id }), { ...paid, id: other }]
  const first = await store.events.append('order-42', events, { expected: 'empty' })
  await store.events.append('order-42', placed())

  const again = await store.events.append('order-42', events, { expected: 'empty' })

  expect(again).toEqual({ ...first, repeated: true })
  expect(await store.events.read('order-42').toArray()).toHaveLength(3)
})

test('a repeat over several streams returns the first outcome of each', async () => {
  const { store } = await openShop()
  const streams = [
    { stream: 'order-1', events: placed(1, { id }) },
    { stream: 'order-2', events: placed(2, { id: other }) },
  ]
  const first = await store.events.appendMany(streams)

  const again = await store.events.appendMany(streams)

  expect(again).toEqual(first.map(result => ({ ...result, repeated: true })))
  expect(await store.events.readAll().toArray()).toHaveLength(2)
})

const differences: Record<string, { stream: string; event: object }> = {
  'other data': { stream: 'order-42', event: placed(1, { id }) },
  'another type': { stream: 'order-42', event: { ...paid, id } },
  'another stream': { stream: 'order-43', event: placed(99, { id }) },
}

for (const [what, { stream, event }] of Object.entries(differences)) {
  test(`an id that belongs to an event with ${what} is refused by name, and nothing is stored`, async () => {
    const { store } = await openShop()
    await store.events.append('order-42', placed(99, { id }))

    const appending = store.events.append(stream, [placed(), event as typeof paid])

    await expect(appending).rejects.toMatchObject({
      code: 'duplicate_event_id',
      eventIds: expect.arrayContaining([id.toLowerCase()]),
    })
    expect(await store.events.readAll().toArray()).toHaveLength(1)
    expect(await store.streams.describe('order-43')).toBeUndefined()
  })
}

test('an append with only some known ids is not a repeat but a duplicate', async () => {
  const { store } = await openShop()
  await store.events.append('order-42', placed(99, { id }))

  const appending = store.events.append('order-42', [placed(99, { id }), { ...paid, id: other }])

  await expect(appending).rejects.toMatchObject({ code: 'duplicate_event_id' })
  expect(await store.events.has(other)).toBe(false)
})

test('one id for two events of one append is refused before anything is sent', async () => {
  const { store } = await openShop()

  const appending = store.events.append('order-42', [placed(1, { id }), placed(1, { id })])

  await expect(appending).rejects.toMatchObject({ code: 'invalid_event', path: 'id' })
  expect(await store.events.head()).toBe(0)
})

test('one id used by two calls of one group is stored once: the same content is a repeat, other content is refused', async () => {
  const { store } = await openShop()
  const neighbours = Array.from({ length: 20 }, (_, n) => store.events.append(`order-${n}`, placed(n)))

  const same = [1, 2].map(() => outcome(store.events.append('order-a', placed(1, { id }))))
  const differing = [1, 2].map(n => outcome(store.events.append('order-b', placed(n, { id: other }))))
  const more = Array.from({ length: 20 }, (_, n) => store.events.append(`order-${n}`, paid))

  expect((await Promise.all(same)).map(each => each.value?.repeated)).toEqual([false, true])
  const [first, second] = await Promise.all(differing)
  expect(first!.value).toMatchObject({ version: 1, repeated: false })
  expect(second!.error).toMatchObject({ code: 'duplicate_event_id', eventIds: [other] })
  expect((await Promise.all(neighbours)).map(result => result.version)).toEqual(Array(20).fill(1))
  expect((await Promise.all(more)).map(result => result.version)).toEqual(Array(20).fill(2))
})

test('a duplicate id in a group fails alone, and the 50 other appends are stored', async () => {
  const { store } = await openShop()
  await store.events.append('order-taken', placed(1, { id }))

  const calls = Array.from({ length: 51 }, (_, n) =>
    outcome(store.events.append(`order-${n}`, n === 25 ? placed(2, { id }) : placed(n))),
  )

  const outcomes = await Promise.all(calls)
  expect(outcomes[25]!.error).toMatchObject({ code: 'duplicate_event_id' })
  expect(outcomes.filter(each => each.value?.version === 1)).toHaveLength(50)
})

test('an id that two stores use at once for different events ends as one event and one clear refusal', async () => {
  const { store, sibling } = await openShop()
  const second = await sibling()

  for (let round = 0; round < 10; round++) {
    const shared = `0190b2f0-6a1c-7def-8123-0000000001${round}0`
    const outcomes = await Promise.all([
      outcome(store.events.append(`order-a${round}`, placed(1, { id: shared }))),
      outcome(second.events.append(`order-b${round}`, placed(2, { id: shared }))),
    ])

    expect(outcomes.filter(each => each.value !== undefined)).toHaveLength(1)
    expect(outcomes.find(each => each.error !== undefined)!.error).toMatchObject({ code: 'duplicate_event_id' })
  }
})

test('an id that is not a UUID is refused before anything is sent', async () => {
  const { store } = await openShop()

  for (const wrong of ['order-42', '', 42, `${id}0`]) {
    const appending = store.events.append('order-42', placed(1, { id: wrong }))

    await expect(appending, String(wrong)).rejects.toMatchObject({ code: 'invalid_event', path: 'id' })
  }
})
