import { expect, test } from 'vitest'
import { z } from 'zod'
import { defineEvents } from '../../src/events/definition.ts'
import { reshapeEvent, toRecordedEvent } from '../../src/events/read/rows.ts'

const id = '0190b2f0-6a1c-7def-8123-456789abcdef'
const createdAt = new Date('2026-03-01T09:00:00Z')
const placed = toRecordedEvent(
  9_007_199_254_740_991,
  'order-42',
  1,
  id,
  'OrderPlaced',
  2,
  { total: 99 },
  {},
  id,
  null,
  'ada',
  createdAt,
)

test('an event is made from its columns, and null in the database is undefined', () => {
  expect({ ...placed }).toEqual({
    id,
    type: 'OrderPlaced',
    data: { total: 99 },
    stream: 'order-42',
    version: 1,
    position: 9_007_199_254_740_991,
    schemaVersion: 2,
    headers: {},
    correlationId: id,
    causationId: undefined,
    userId: 'ada',
    createdAt,
  })
})

test('an event survives JSON.stringify, its position as a number', () => {
  expect(JSON.parse(JSON.stringify([placed]))[0]).toEqual({
    id,
    type: 'OrderPlaced',
    data: { total: 99 },
    stream: 'order-42',
    version: 1,
    position: 9007199254740991,
    schemaVersion: 2,
    headers: {},
    correlationId: id,
    userId: 'ada',
    createdAt: '2026-03-01T09:00:00.000Z',
  })
})

test('an event compares by value, and prints only its own fields', () => {
  expect(placed).toMatchObject({ type: 'OrderPlaced', data: { total: 99 }, version: 1 })
  expect(Object.keys(placed)).not.toContain('toJSON')
})

test('an upcast event is the same fact, and also survives JSON.stringify', () => {
  const reshaped = reshapeEvent(placed, 'OrderAccepted', 1, { sum: 99 })

  expect({ ...reshaped }).toEqual({ ...placed, type: 'OrderAccepted', schemaVersion: 1, data: { sum: 99 } })
  expect(JSON.parse(JSON.stringify(reshaped)).position).toBe(9007199254740991)
  expect(placed.data).toEqual({ total: 99 })
})

test('a definition by schemas knows them by type; a definition by types alone checks nothing', () => {
  const total = z.object({ total: z.number() })

  expect(defineEvents({ OrderPlaced: total }).schemas.OrderPlaced).toBe(total)
  expect(defineEvents<{ OrderPlaced: { total: number } }>().schemas).toEqual({})
})
