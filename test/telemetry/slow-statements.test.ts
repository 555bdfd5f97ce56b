import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { expect, onTestFinished, test } from 'vitest'
import { sql } from '../../src/database/sql.ts'
import { watchStatements } from '../../src/telemetry/slow-statements.ts'
import { channels, openTelemetry } from '../../src/telemetry/telemetry.ts'
import { openDatabase } from '../support/engines.ts'
import { openShop, placed } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

interface Told {
  readonly statement: string
  readonly text: string
  readonly durationMs: number
  readonly plan?: string
}

function recordingLogger() {
  const told: Told[] = []
  const warn = (fields: object, message: string): void => {
    if (message === 'A statement was slow.') told.push(fields as Told)
  }
  return { told, logger: { debug() {}, info() {}, warn, error() {} } }
}

test('a statement that takes longer than its limit is told with its name and text, and never with its values', async () => {
  const { told, logger } = recordingLogger()
  const { store, schema } = await openShop({ logger, slowStatementMs: 50 })
  const heard: unknown[] = []
  const hear = (message: unknown): void => void heard.push(message)
  subscribe(channels.slow, hear)
  onTestFinished(() => void unsubscribe(channels.slow, hear))

  await store.transaction(tx => tx.query('select pg_sleep($1), $2::text', [0.06, 'secret']))
  await store.events.append('order-1', placed())

  const [slow] = told.filter(({ text }) => text.includes('pg_sleep'))
  const text = 'select pg_sleep($1), $2::text'
  expect(slow).toEqual({ schema, statement: 'query', text, durationMs: expect.any(Number) })
  expect(slow!.durationMs).toBeGreaterThan(50)
  expect(heard).toContain(slow)
  expect(store.metrics().slow_statements_total).toBe(told.length)
})

test('by default the limit is half a second, and there is no plan', async () => {
  const { told, logger } = recordingLogger()
  const { store } = await openShop({ logger, slowStatementMs: undefined })

  await store.transaction(tx => tx.query('select pg_sleep(0.6)'))
  await store.transaction(tx => tx.query('select pg_sleep(0.1)'))

  expect(told.filter(({ text }) => text === 'select pg_sleep(0.6)')).toEqual([
    expect.not.objectContaining({ plan: expect.anything() }),
  ])
  expect(told.filter(({ text, durationMs }) => text.includes('0.1') && durationMs < 500)).toEqual([])
})

test('RB-43: on request the plan is told, made with the values of the statement', async () => {
  const { told, logger } = recordingLogger()
  const { store } = await openShop({ logger, slowStatementMs: 0, explainSlow: true })

  await store.events.append('order-1', placed())
  await store.events.read('order-1', { from: 1, limit: 3 }).toArray()

  await waitUntil(() => told.some(({ plan }) => plan !== undefined))
  const explained = told.filter(({ plan }) => plan !== undefined)
  expect(explained.every(({ plan }) => /\(cost=.*rows=.*width=/.test(plan!))).toBe(true)
})

test('a plan runs nothing: a slow write is explained once it has been done, and done once', async () => {
  const { told, logger } = recordingLogger()
  const { store, query, named } = await openShop({ logger, slowStatementMs: 0, explainSlow: true })
  await query('create table ~slips (n integer not null)')

  await store.transaction(tx => tx.query(named('insert into ~slips (n) values ($1::integer)'), [7]))

  await waitUntil(() => told.some(({ text }) => text.includes('"slips"')))
  expect(await query('select n from ~slips')).toEqual([{ n: 7 }])
})

test('one statement is explained once a minute, and what has no plan is not', async () => {
  const { told, logger } = recordingLogger()
  const database = watchStatements(
    await openDatabase(),
    { telemetry: openTelemetry(logger), schema: 'shop' },
    { slowStatementMs: 0, explainSlow: true },
  )
  const statement = sql`/* test.seldom */ select ${1}::integer as one`

  await database.run(statement)
  await waitUntil(() => told.length === 1)
  await database.run(statement)
  await waitUntil(() => told.length === 2)
  await database.transaction(tx => tx.query('set local lock_timeout = 100'))
  await waitUntil(() => told.length === 3)

  expect(told.map(({ statement: label, plan }) => [label, plan !== undefined])).toEqual([
    ['test.seldom', true],
    ['test.seldom', false],
    ['query', false],
  ])
})

test('inside of a transaction the plan is asked for elsewhere: nothing waits for it, and nothing of it is in the way', async () => {
  const { told, logger } = recordingLogger()
  const database = watchStatements(
    await openDatabase(),
    { telemetry: openTelemetry(logger), schema: 'shop' },
    { slowStatementMs: 0, explainSlow: true },
  )

  const rows = await database.transaction(async tx => {
    const [first] = await tx.query<{ pid: number }>('select pg_backend_pid() as pid')
    const [second] = await tx.query<{ pid: number }>('select pg_backend_pid() as pid, 2 as two')
    return [first!.pid, second!.pid]
  })

  expect(rows[0]).toBe(rows[1])
  await waitUntil(() => told.some(({ plan }) => plan?.startsWith('Result') === true))
})
