import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { workerOf } from '../support/run-worker.ts'
import { waitUntil } from '../support/wait.ts'
import {
  checkEvents,
  expectNothingOpen,
  fanOut,
  joined,
  openOrderChecks,
  publishChecked,
  settled,
} from './order-checks.ts'

test('a join that has begun ends with its version', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: string[] = []
  flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => void runs.push('version 1') }))
  await using worker = workerOf(checks.store)
  await worker.start()
  const [old, fresh] = [randomUUID(), randomUUID()]
  await publishChecked(checks, { id: old, index: 0, size: 2 })
  await joined(checks, 1)
  const newer = await checks.second()
  newer.flows.register(defineJoin('clear', { on: 'OrderChecked', version: 2, run: () => void runs.push('version 2') }))
  await using second = workerOf(newer.store)
  await second.start()

  const flow = await publishChecked(checks, { id: old, index: 1, size: 2 })
  await settled(flow)
  await publishChecked(checks, { id: fresh, index: 0, size: 1 })
  await settled(flow)

  expect(runs).toEqual(['version 1', 'version 2'])
})

test('a new join can be backfilled with earlier events', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: string[][] = []
  fanOut(flows)
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      run: (event, { emit }) => (event.data.item === 'ink' ? undefined : emit('OrderChecked', event.data)),
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { items: ['pen', 'ink', 'glue'] })
  await settled(flow)
  const newer = await checks.second()
  newer.flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      from: 0,
      run: (events, { join }) => {
        runs.push([...events.map(event => event.data.item), `empty ${join.empty}`])
      },
    }),
  )

  await using second = workerOf(newer.store)
  await second.start()
  await waitUntil(() => runs.length > 0)
  await settled(flow)

  expect(runs).toEqual([['pen', 'glue', 'empty 1']])
  await expectNothingOpen(checks)
})
