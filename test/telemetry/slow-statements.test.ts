import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { expect, onTestFinished, test } from 'vitest'
import { sql } from '../../src/database/sql.ts'
import { watchStatements } from '../../src/telemetry/slow-statements.ts'
import { channels, openTelemetry } from '../../src/telemetry/telemetry.ts'
import { openDatabase } from '../support/engines.ts'
import { openShop, placed } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

interface Logged {
  readonly statement: string
  readonly text: string
  readonly durationMs: number
  readonly plan?: string
}

function recordingLogger() {
  const reported: Logged[] = []
  const warn = (fields: object, message: string): void => {
    if (message === 'A statement was slow.') reported.push(fields as Logged)
  }
  return { reported, logger: { debug() {}, info() {}, warn, error() {} } }
}

test('a statement slower than its limit is logged with its name and text, and never with its values', async () => {
  const { reported, logger } = recordingLogger()
  const { store, schema } = await openShop({ logger, slowStatementMs: 50 })
  const received: unknown[] = []
  const listen = (message: unknown): void => void received.push(message)
  subscribe(channels.slow, listen)
  onTestFinished(() => void unsubscribe(channels.slow, listen))

  await store.transaction(tx => tx.query('select pg_sleep($1), $2::text', [0.06, 'secret']))
  await store.events.append('order-1', placed())

  const [slow] = reported.filter(({ text }) => text.includes('pg_sleep'))
  const text = 'select pg_sleep($1), $2::text'
  expect(slow).toEqual({ schema, statement: 'query', text, durationMs: expect.any(Number) })
  expect(slow!.durationMs).toBeGreaterThan(50)
  expect(received).toContain(slow)
  expect(store.metrics().slow_statements_total).toBe(reported.length)
})

test('by default the limit is half a second, and there is no plan', async () => {
  const { reported, logger } = recordingLogger()
  const { store } = await openShop({ logger, slowStatementMs: undefined })

  await store.transaction(tx => tx.query('select pg_sleep(0.6)'))
  await store.transaction(tx => tx.query('select pg_sleep(0.1)'))

  expect(reported.filter(({ text }) => text === 'select pg_sleep(0.6)')).toEqual([
    expect.not.objectContaining({ plan: expect.anything() }),
  ])
  expect(reported.filter(({ text, durationMs }) => text.includes('0.1') && durationMs < 500)).toEqual([])
})

test('RB-43: on request the plan is logged, made with the values of the statement', async () => {
  const { reported, logger } = recordingLogger()
  const { store } = await openShop({ logger, slowStatementMs: 0, explainSlow: true })

  await store.events.append('order-1', placed())
  await store.events.read('order-1', { from: 1, limit: 3 }).toArray()

  await waitUntil(() => reported.some(({ plan }) => plan !== undefined))
  const explained = reported.filter(({ plan }) => plan !== undefined)
  expect(explained.every(({ plan }) => /\(cost=.*rows=.*width=/.test(plan!))).toBe(true)
})

test('no value of a statement is in its plan, nor in the reason why there is none', async () => {
  const { reported, logger } = recordingLogger()
  const database = watchStatements(
    await openDatabase(),
    { telemetry: openTelemetry(logger), schema: 'shop' },
    { slowStatementMs: 0, explainSlow: true },
  )
  const card = "4111's\n1111"

  await database.run(sql`/* test.texts */
    select relname
    from pg_class
    where relname = ${card}::text
      and relpages > ${417_111}::integer
      and relname = any(${[card, 'other-417111']}::text[])`)
  await waitUntil(() => reported.length === 1)
  await database.run(sql`/* test.refused */ select ${'417111 is not a number'}::text::integer`).catch(() => {})
  await waitUntil(() => reported.length === 2)

  expect(reported[0]!.plan).toContain('(cost=')
  expect(JSON.stringify(reported.map(({ plan }) => plan))).not.toMatch(/4111|1111|417111/)
})

test('a plan runs nothing: a slow write is explained after it has run, and runs once', async () => {
  const { reported, logger } = recordingLogger()
  const { store, query, named } = await openShop({ logger, slowStatementMs: 0, explainSlow: true })
  await query('create table ~slips (n integer not null)')

  await store.transaction(tx => tx.query(named('insert into ~slips (n) values ($1::integer)'), [7]))

  await waitUntil(() => reported.some(({ text }) => text.includes('"slips"')))
  expect(await query('select n from ~slips')).toEqual([{ n: 7 }])
})

test('a statement is explained at most once a minute, and one without a plan is not', async () => {
  const { reported, logger } = recordingLogger()
  const database = watchStatements(
    await openDatabase(),
    { telemetry: openTelemetry(logger), schema: 'shop' },
    { slowStatementMs: 0, explainSlow: true },
  )
  const statement = sql`/* test.seldom */ select ${1}::integer as one`

  await database.run(statement)
  await waitUntil(() => reported.length === 1)
  await database.run(statement)
  await waitUntil(() => reported.length === 2)
  await database.transaction(tx => tx.query('set local lock_timeout = 100'))
  await waitUntil(() => reported.length === 3)

  expect(reported.map(({ statement: label, plan }) => [label, plan !== undefined])).toEqual([
    ['test.seldom', true],
    ['test.seldom', false],
    ['query', false],
  ])
})

test('inside a transaction the plan is made elsewhere: nothing waits for it, and it does not interfere', async () => {
  const { reported, logger } = recordingLogger()
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
  await waitUntil(() => reported.some(({ plan }) => plan?.startsWith('Result') === true))
})
