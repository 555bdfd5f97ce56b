import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { JoinInfo, JoinPolicy } from '../../src/workflows/joins/join.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { waitUntil } from '../support/wait.ts'
import {
  checkEvents,
  deadLettersOf,
  expectNothingOpen,
  fanOut,
  items,
  joinsOf,
  type OrderChecks,
  openOrderChecks,
  publishChecked,
  settled,
} from './order-checks.ts'

interface Run {
  readonly items: readonly string[]
  readonly join: JoinInfo
}

/** A shop whose check of an item fails, emits nothing or succeeds, and a join with this policy. */
async function openPolicy(
  policy: JoinPolicy,
  { broken = [], empty = [] }: { broken?: readonly string[]; empty?: readonly string[] },
): Promise<OrderChecks & { runs: Run[] }> {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: Run[] = []
  fanOut(flows, { join: 'clear' })
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      retries: 0,
      run: ({ data }, { emit }) => {
        if (broken.includes(data.item)) throw new Error(`${data.item} is broken`)
        return empty.includes(data.item) ? undefined : emit('OrderChecked', data)
      },
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      policy,
      run: (events, ctx) => {
        runs.push({ items: events.map(event => event.data.item), join: ctx.join })
      },
    }),
  )
  return { ...checks, runs }
}

test('all: a branch that fails fails the join, whose dead letter says so', async () => {
  const checks = await openPolicy('all', { broken: ['ink'] })
  await using worker = checks.flows.worker()
  await worker.start()

  const status = await settled(await checks.flows.publish('OrderPlaced', { items }))
  const deadLetters = await deadLettersOf(checks)

  expect(checks.runs).toEqual([])
  expect(status).toMatchObject({ state: 'failed', deadLetters: 2 })
  expect(deadLetters).toMatchObject([
    { consumer: 'handler:check', reason: 'failed', type: 'CheckAsked' },
    { consumer: 'handler:clear', reason: 'join_failed', type: 'CheckAsked', attempts: 1 },
  ])
  expect(deadLetters[0]!.event_id).toBe(deadLetters[1]!.event_id)
  expect(await joinsOf(checks)).toMatchObject([{ state: 'failed', failed: 1 }])
  await expectNothingOpen(checks)
})

test('all: if every branch fails, the join that the batch names has one dead letter', async () => {
  const checks = await openPolicy('all', { broken: items })
  await using worker = checks.flows.worker()
  await worker.start()

  await settled(await checks.flows.publish('OrderPlaced', { items }))
  const deadLetters = await deadLettersOf(checks)

  expect(deadLetters.filter(({ consumer }) => consumer === 'handler:check')).toHaveLength(5)
  expect(deadLetters.filter(({ consumer }) => consumer === 'handler:clear')).toMatchObject([{ reason: 'join_failed' }])
  await expectNothingOpen(checks)
})

test('all: if every branch fails, the join that their handler emits for has one dead letter', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  fanOut(flows)
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      emits: ['OrderChecked'],
      retries: 0,
      run: () => {
        throw new Error('broken')
      },
    }),
  )
  flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => {} }))
  await using worker = flows.worker()
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items }))
  const deadLetters = await deadLettersOf(checks)

  expect(deadLetters.filter(({ consumer }) => consumer === 'handler:clear')).toMatchObject([{ reason: 'join_failed' }])
  await expectNothingOpen(checks)
})

test('all-settled: it runs when every branch has ended, with the outcome of each', async () => {
  const checks = await openPolicy('allSettled', { broken: ['pen', 'tape'], empty: ['paper'] })
  await using worker = checks.flows.worker()
  await worker.start()

  await settled(await checks.flows.publish('OrderPlaced', { items }))

  expect(checks.runs).toMatchObject([
    { items: ['ink', 'glue'], join: { size: 5, failed: [0, 4], empty: [2], isPartial: false } },
  ])
  await expectNothingOpen(checks)
})

test('all-settled: it also runs if every branch has failed', async () => {
  const checks = await openPolicy('allSettled', { broken: items })
  await using worker = checks.flows.worker()
  await worker.start()

  await settled(await checks.flows.publish('OrderPlaced', { items }))

  expect(checks.runs).toMatchObject([{ items: [], join: { failed: [0, 1, 2, 3, 4] } }])
  await expectNothingOpen(checks)
})

test('quorum: it runs with exactly that many, once, and the others arrive late', async () => {
  const checks = await openPolicy({ quorum: 3 }, { broken: ['ink'] })
  await using worker = checks.flows.worker()
  await worker.start()

  await settled(await checks.flows.publish('OrderPlaced', { items }))

  expect(checks.runs).toHaveLength(1)
  expect(checks.runs[0]!.items).toHaveLength(3)
  const [join] = (await joinsOf(checks)) as { entries: string[] }[]
  expect(join).toMatchObject({ state: 'closed', arrived: 3 })
  expect(join!.entries.filter(entry => entry.endsWith('late'))).toHaveLength(1)
  await expectNothingOpen(checks)
})

test('quorum: it fails as soon as the quorum cannot be reached', async () => {
  const checks = await openPolicy({ quorum: 3 }, { broken: ['pen', 'ink'], empty: ['glue'] })
  await using worker = checks.flows.worker()
  await worker.start()

  await settled(await checks.flows.publish('OrderPlaced', { items }))
  const deadLetters = await deadLettersOf(checks)

  expect(checks.runs).toEqual([])
  expect(deadLetters.filter(({ consumer }) => consumer === 'handler:clear')).toMatchObject([{ reason: 'join_failed' }])
  await expectNothingOpen(checks)
})

test('first: it runs with one event, whichever others arrive in the same moment', async () => {
  const checks = await openPolicy('first', { broken: ['pen'], empty: ['ink'] })
  await using worker = checks.flows.worker()
  await worker.start()

  await settled(await checks.flows.publish('OrderPlaced', { items }))

  expect(checks.runs).toMatchObject([{ items: [expect.any(String)], join: { size: 5 } }])
  await expectNothingOpen(checks)
})

test('SB-12: without any traffic the join times out and runs with the events it has', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: Run[] = []
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      joinTimeoutMs: 40,
      onJoinTimeout: 'partial',
      run: (events, ctx) => {
        runs.push({ items: events.map(event => event.data.item), join: ctx.join })
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()
  const batch = { id: randomUUID(), size: 4 }

  const flow = await checks.store.transaction(async tx => {
    await publishChecked(checks, { ...batch, index: 2 }, 'paper', { tx })
    return publishChecked(checks, { ...batch, index: 0 }, 'pen', { tx })
  })
  await settled(flow)
  await publishChecked(checks, { ...batch, index: 3 }, 'late')
  await settled(flow)

  expect(runs).toEqual([
    { items: ['pen', 'paper'], join: { batchId: batch.id, size: 4, failed: [], empty: [], isPartial: true } },
  ])
  expect(await joinsOf(checks)).toMatchObject([{ state: 'closed', entries: ['0 arrived', '2 arrived', '3 late'] }])
  await expectNothingOpen(checks)
})

test('SB-12: without any traffic the join times out and has a dead letter', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  let runs = 0
  flows.register(defineJoin('clear', { on: 'OrderChecked', joinTimeoutMs: 40, retries: 5, run: () => void runs++ }))
  await using worker = flows.worker()
  await worker.start()

  const flow = await publishChecked(checks, { id: randomUUID(), index: 1, size: 2 }, 'pen')
  const status = await settled(flow)

  expect(runs).toBe(0)
  expect(status.state).toBe('failed')
  expect(await deadLettersOf(checks)).toMatchObject([
    { consumer: 'handler:clear', reason: 'join_timeout', type: 'OrderChecked', attempts: 1 },
  ])
  expect(await joinsOf(checks)).toMatchObject([{ state: 'expired', arrived: 1 }])
  await expectNothingOpen(checks)
})

test('SB-12: a join that the batch names times out, also if nothing ever arrives', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: JoinInfo[] = []
  fanOut(flows, { join: 'clear' })
  flows.register(defineHandler('check', { on: 'CheckAsked', delayMs: 60_000, run: () => {} }))
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      joinTimeoutMs: 30,
      onJoinTimeout: 'partial',
      run: (_, ctx) => {
        runs.push(ctx.join)
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  await flows.publish('OrderPlaced', { items })
  await waitUntil(() => runs.length > 0)

  expect(runs).toMatchObject([{ size: 5, isPartial: true }])
})

test('a join refuses options that it does not support', async () => {
  const { flows } = await openOrderChecks()
  const join = (more: object): void =>
    flows.register(defineJoin('clear', { on: 'OrderChecked', ...more, run: () => {} }))

  for (const wrong of [
    { of: 'stream' },
    { policy: 'some' },
    { policy: { quorum: 0 } },
    { policy: { quorum: 1.5 } },
    { joinTimeoutMs: 0 },
    { timeoutMs: 0 },
    { onJoinTimeout: 'ignore' },
    { ordered: true },
    { inline: true },
    { when: () => true },
  ])
    expect(() => join(wrong), JSON.stringify(wrong)).toThrowError(expect.objectContaining({ code: 'invalid_option' }))
  expect(() => flows.register(defineJoin('all', { on: '*' as 'OrderChecked', run: () => {} }))).toThrowError(
    'Name the types it waits for',
  )
})
