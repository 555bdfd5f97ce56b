import { expect, test } from 'vitest'
import { defineUndo } from '../../src/workflows/cancel/undo.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { inconsistentCounters } from '../support/counters-consistency.ts'
import { waitUntil } from '../support/wait.ts'
import { checkEvents, fanOut, items, type OrderChecks, openOrderChecks } from './order-checks.ts'

async function statesOf({ query }: OrderChecks): Promise<string[]> {
  const rows = await query<{ join: string }>(`select state || ' ' || arrived as join from ~workflow_joins`)
  return rows.map(row => row.join)
}

test('a join of a cancelled workflow never runs, whatever arrives and however long it waits', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: unknown[] = []
  fanOut(flows)
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      run: async (event, ctx) => {
        // All but the first wait for a signal that comes too late.
        if (event.data.item !== items[0]) await ctx.waitForEvent('OrderCleared')
        return ctx.emit('OrderChecked', { item: event.data.item })
      },
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      joinTimeoutMs: 60_000,
      run: events => void runs.push(events),
    }),
  )
  await using worker = flows.worker({ pollMs: 20 })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { items })
  await waitUntil(async () => (await statesOf(checks))[0] === 'open 1')
  await waitUntil(async () => (await flow.status()).state === 'waiting')
  expect(await inconsistentCounters(checks)).toEqual([])

  const status = await flow.cancel()
  await checks.query(`update ~workflow_joins set deadline_at = now() - interval '1 second'`)
  await flow.signal('OrderCleared', { items: [] })
  await flow.signal('OrderChecked', { item: 'late' })
  await flow.waitUntilSettled()
  await worker.stop()

  expect(status).toMatchObject({ state: 'cancelled', pending: 0 })
  expect(runs).toEqual([])
  expect(await statesOf(checks)).toEqual(['cancelled 1'])
  expect(await inconsistentCounters(checks)).toEqual([])
})

test('a join that fails for good compensates the workflow, if it is configured to', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const taken: string[] = []
  const undone: unknown[] = []
  fanOut(flows)
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      retries: 0,
      run: async (event, ctx) => {
        const undo = { by: 'put-back', data: event.data.item }
        await ctx.step('take', () => void taken.push(event.data.item), { undo })
        if (event.data.item === items[0]) {
          await waitUntil(() => taken.length === items.length)
          throw new Error('none left')
        }
        return ctx.emit('OrderChecked', { item: event.data.item })
      },
    }),
  )
  flows.register(defineJoin('clear', { on: 'OrderChecked', onDeadLetter: 'compensate', run: () => {} }))
  flows.register(defineUndo('put-back', { run: data => void undone.push(data) }))
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { items })
  await waitUntil(async () => (await flow.status()).state === 'compensated')
  const status = await flow.waitUntilSettled()

  expect(status).toMatchObject({ state: 'compensated', pending: 0, deadLetters: 2 })
  expect([...undone].sort()).toEqual([...items].sort())
  expect(await inconsistentCounters(checks)).toEqual([])
})
