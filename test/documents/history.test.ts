import { expect, test } from 'vitest'
import { outcome } from '../support/shop.ts'
import { ada, bob, openCustomers } from './customers.ts'

test('every version is stored, whichever call wrote it', async () => {
  const { customers, store } = await openCustomers({ history: true })

  await customers.insert('ada', ada, { userId: 'clerk' })
  await customers.put('ada', bob)
  await customers.put('ada', ada, { expected: 2 })
  await customers.update('ada', data => ({ ...data, visits: 1 }))
  await customers.patch('ada', { visits: 2 })
  await customers.merge('ada', { visits: 3 })
  await customers.putMany([{ id: 'ada', data: { email: 'put' } }])
  await customers.updateMany([{ id: 'ada', data: { email: 'update' } }])
  await customers.softDelete('ada')
  await customers.restore('ada', { userId: 'boss' })
  await customers.delete('ada', { userId: 'boss' })

  const { items: versions } = await customers.history('ada')
  expect(versions.map(({ version, data }) => [version, data?.email, data?.visits])).toEqual([
    [1, 'ada@x', undefined],
    [2, 'bob@x', undefined],
    [3, 'ada@x', undefined],
    [4, 'ada@x', 1],
    [5, 'ada@x', 2],
    [6, 'ada@x', 3],
    [7, 'put', undefined],
    [8, 'update', undefined],
    [9, 'update', undefined],
    [10, 'update', undefined],
    [11, undefined, undefined],
  ])
  expect(versions[0]).toMatchObject({ createdBy: 'clerk', updatedBy: 'clerk', data: ada })
  expect(versions[8]).toMatchObject({ deletedAt: expect.any(Date) })
  expect(versions[10]).toMatchObject({ createdBy: 'clerk', updatedBy: 'boss', deletedAt: expect.any(Date) })
  const { next } = await customers.history('ada', { limit: 8 })
  const page = await customers.history('ada', { after: next, limit: 2 })
  expect(page.items.map(({ version }) => version)).toEqual([9, 10])
  expect((await customers.history('ada', { after: page.next, limit: 2 })).next).toBeUndefined()
  expect(await customers.history('nobody')).toEqual({ items: [], next: undefined })
  expect((await store.schema.check()).problems).toEqual([])
})

test('the versions of a document that is created again after a delete continue', async () => {
  const { customers } = await openCustomers({ history: true })
  await customers.put('ada', ada)
  await customers.put('bob', ada)
  await customers.deleteMany(['ada', 'bob', 'nobody'])

  expect(await customers.insert('ada', bob)).toBe(3)
  expect(await customers.putMany([{ id: 'bob', data: bob }])).toMatchObject([{ version: 3 }])
  expect(await customers.batch().delete('ada').insert('ada', ada).flush()).toMatchObject([
    { version: 3 },
    { version: 5 },
  ])

  expect((await customers.history('ada')).items.map(({ version, data }) => [version, data?.email])).toEqual([
    [1, 'ada@x'],
    [2, undefined],
    [3, 'bob@x'],
    [4, undefined],
    [5, 'ada@x'],
  ])
})

test('a document can be read as it was at a version, or at a time', async () => {
  const { customers, query } = await openCustomers({ history: true })
  await customers.put('ada', ada)
  await customers.put('ada', bob)
  await customers.softDelete('ada')
  await customers.restore('ada')
  await query(`update ~customers__history set updated_at = ~later('2026-01-01', version * 86400000.0)`)
  const at = (day: string): Promise<unknown> =>
    customers.getAt('ada', { at: new Date(`2026-01-${day}`) }).then(found => found?.version)

  expect(await customers.getAt('ada', { version: 1 })).toMatchObject({ id: 'ada', data: ada, version: 1 })
  expect(await customers.getAt('ada', { version: 3 })).toBeUndefined()
  expect(await customers.getAt('ada', { version: 9 })).toBeUndefined()
  expect(await at('01')).toBeUndefined()
  expect(await at('02')).toBe(1)
  expect(await at('03T12:00:00Z')).toBe(2)
  expect(await at('04')).toBeUndefined()
  expect(await at('30')).toBe(4)
})

test('a version is valid from its own time on', async () => {
  const { customers } = await openCustomers({ history: true })
  await customers.put('ada', ada)
  const { updatedAt } = (await customers.get('ada'))!

  expect((await customers.getAt('ada', { at: updatedAt }))?.version).toBe(1)
})

test('no version is lost or duplicated under concurrent writes', async () => {
  const { customers } = await openCustomers({ history: true })

  const write = (_: unknown, i: number): Promise<number | boolean> =>
    i % 4 === 3 ? customers.delete('ada') : customers.put('ada', { email: `${i}` })
  const outcomes = await Promise.all(Array.from({ length: 12 }, write).map(each => outcome(each)))

  const failures = outcomes.flatMap(({ error }) => (error === undefined ? [] : [error]))
  for (const failure of failures) expect(failure).toMatchObject({ code: 'serialization_failed', retryable: true })
  const versions = (await customers.history('ada')).items.map(({ version }) => version)
  expect(versions).toEqual(versions.map((_, i) => i + 1))
  const made = outcomes.flatMap(({ value }) => (typeof value === 'number' ? [value] : []))
  expect(new Set(made).size).toBe(made.length)
  expect(made.every(version => versions.includes(version))).toBe(true)
})

test('rolled back writes never appear in the history', async () => {
  const { customers, store } = await openCustomers({ history: true })
  await customers.put('ada', ada)

  const work = store.transaction(async tx => {
    await customers.put('ada', bob, { tx })
    throw new Error('never mind')
  })
  await expect(work).rejects.toThrow('never mind')

  expect((await customers.history('ada')).items).toHaveLength(1)
})

test('a collection without history has none to read, and an invalid time is refused', async () => {
  const { customers } = await openCustomers()
  await expect(customers.history('ada')).rejects.toMatchObject({ code: 'invalid_option', option: 'history' })
  await expect(customers.getAt('ada', { version: 1 })).rejects.toMatchObject({ code: 'invalid_option' })

  const kept = await openCustomers({ history: true })
  await expect(kept.customers.getAt('ada', { at: new Date('never') })).rejects.toMatchObject({ option: 'at' })
  await expect(kept.customers.history('ada', { limit: 0 })).rejects.toMatchObject({ option: 'limit' })
})
