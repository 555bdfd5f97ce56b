import { expect, test } from 'vitest'
import { whyIncompatible } from '../../src/database/settings.ts'
import { isConnectionLost, sqlStateOf, toRillflowError } from '../../src/database/sqlstate.ts'

const failed = (code: string, message = 'it failed'): Error => Object.assign(new Error(message), { code })

test.each(['EPIPE', 'ECONNRESET', '57P01', '25P03', '08006'])('%s is a lost connection', code => {
  expect(isConnectionLost(failed(code))).toBe(true)
  expect(toRillflowError(failed(code), 'orders.get')).toMatchObject({ code: 'connection_lost', retryable: true })
})

test.each(['23505', '42P01', '22P02'])('%s is an answer of the server', code => {
  expect(sqlStateOf(failed(code))).toBe(code)
  expect(isConnectionLost(failed(code, 'could not connect the dots'))).toBe(false)
  expect(toRillflowError(failed(code), 'orders.get')).toMatchObject({ code: 'database_failed', sqlState: code })
})

test('a duplicate that a node of a cluster refused is one, and a commit it may have is a lost connection', () => {
  const of = (message: string) => Object.assign(new Error(message), { code: 'XX000' })

  expect(sqlStateOf(of('duplicate key value violates unique constraint "events_event_id_102008"'))).toBe('23505')
  const unknown = of('could not commit transaction for shard 102008 on at least one active node')
  expect(isConnectionLost(unknown)).toBe(true)
  expect(toRillflowError(unknown, 'events.append')).toMatchObject({ code: 'connection_lost', retryable: true })
  expect(toRillflowError(of('cache lookup failed'), 'events.append')).toMatchObject({ sqlState: 'XX000' })
})

test.each([
  ['PostgreSQL 18.1 on x86_64', null],
  ['PostgreSQL 17.2 on x86_64', '13.2-1'],
  ['PostgreSQL 17.2 on x86_64', '14.0-1'],
])('%s with Citus %s can have a store', (product, citus) => {
  expect(whyIncompatible({ product, citus })).toBeUndefined()
})

test.each([
  ['CockroachDB CCL v25.1.2 (x86_64)', null, 'advisory locks do not lock'],
  ['PostgreSQL 15.2-YB-2025.1.0.0-b0', null, 'not proven'],
  ['PostgreSQL 15.3 on x86_64', '13.1-1', '13.2 or newer'],
  ['PostgreSQL 15.3 on x86_64', '12.1-1', '13.2 or newer'],
])('%s with Citus %s is refused, because events could be lost there, or were not tested', (product, citus, reason) => {
  expect(whyIncompatible({ product, citus })).toContain(reason)
})
