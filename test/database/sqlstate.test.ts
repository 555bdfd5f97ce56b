import { expect, test } from 'vitest'
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
