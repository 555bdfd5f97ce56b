import { expect, test } from 'vitest'
import type { Transaction } from '../../src/database/database.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { onServer, openShop, outcome, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const quick = { baseMs: 1 }
const worker = { pollMs: 20 }

async function openLedger(): Promise<Shop & { booked(): Promise<string[]>; book: string }> {
  const shop = await openShop()
  await shop.query('create table ~ledger (n bigint generated always as identity primary key, line text not null)')
  const booked = async (): Promise<string[]> =>
    (await shop.query<{ line: string }>('select line from ~ledger order by n')).map(row => row.line)
  return { ...shop, booked, book: shop.named('insert into ~ledger (line) values ($1) returning n::int') }
}

test('a transactional step writes once, and its result is stored with its writes', async () => {
  const { store, book, booked } = await openLedger()
  const flows = store.workflows
  const seen: unknown[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 2,
      backoff: quick,
      run: async (_event, ctx) => {
        const [row] = await ctx.tx('book', tx => tx.query(book, [`attempt ${ctx.attempt}`]))
        seen.push(row)
        if (ctx.attempt < 3) throw new Error('not yet')
      },
    }),
  )
  await using running = flows.worker(worker)
  await running.start()

  const status = await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(await booked()).toEqual(['attempt 1'])
  expect(seen).toEqual([{ n: 1 }, { n: 1 }, { n: 1 }])
})

test('writes of a failed transactional step are not stored, nor is its result', async () => {
  const { store, book, booked, query } = await openLedger()
  const flows = store.workflows
  const rows: unknown[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: quick,
      run: async (_event, ctx) => {
        await ctx.step('before', () => {})
        rows.push(...(await query('select kind, name from ~workflow_steps order by ordinal')))
        await ctx.tx('book', async tx => {
          await tx.query(book, [`attempt ${ctx.attempt}`])
          if (ctx.attempt === 1) throw new Error('not yet')
        })
      },
    }),
  )
  await using running = flows.worker(worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(await booked()).toEqual(['attempt 2'])
  expect(rows).toEqual([
    { kind: 'step', name: 'before' },
    { kind: 'step', name: 'before' },
  ])
})

test('a result that cannot be stored undoes the writes', async () => {
  const { store, book, booked } = await openLedger()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        await ctx.tx('book', async tx => {
          await tx.query(book, ['lost'])
          return { amount: 1n }
        })
      },
    }),
  )
  await using running = flows.worker(worker)
  await running.start()

  const status = await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(status.state).toBe('failed')
  expect(await booked()).toEqual([])
})

test('a run that was taken over meanwhile writes nothing: writes, result and fence are one transaction', async () => {
  const { store, query, book, booked } = await openLedger()
  const flows = store.workflows
  const errors: unknown[] = []
  let release = (): void => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  let runs = 0
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async (_event, ctx) => {
        const run = ++runs
        if (run === 1) await held
        const writing = ctx.tx('book', async tx => {
          await tx.query(book, [`run ${run}`])
        })
        const { error } = await outcome(writing)
        if (error !== undefined) errors.push(error)
      },
    }),
  )
  await using running = flows.worker({ pollMs: 60_000 })
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await waitUntil(() => runs === 1)

  await query(`update ~workflow_executions set state = 'ready', worker = null`)
  await using other = flows.worker(worker)
  await other.start()
  await flow.waitUntilSettled()
  release()
  await waitUntil(() => errors.length === 1)

  expect((errors[0] as { code: string }).code).toBe('execution_lost')
  expect(await booked()).toEqual(['run 2'])
})

test('the transaction ends with its step', async () => {
  const { store, book, booked } = await openLedger()
  const flows = store.workflows
  const codes: unknown[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async (_event, ctx) => {
        let kept: Transaction | undefined
        await ctx.tx('book', async tx => {
          kept = tx
          await tx.query(book, ['inside'])
        })
        codes.push((await outcome(kept!.query(book, ['outside']))).error)
        codes.push((await outcome(ctx.tx('nested', () => ctx.step('inside', () => 1)))).error)
      },
    }),
  )
  await using running = flows.worker(worker)
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(codes.map(error => (error as { code: string }).code)).toEqual(['transaction_closed', 'inside_transaction'])
  expect(await booked()).toEqual(['inside'])
})

test('steps and transactional steps may run in parallel', async () => {
  const { store, book, booked } = await openLedger()
  const flows = store.workflows
  const runs: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 1,
      backoff: quick,
      run: async (_event, ctx) => {
        const names = Array.from({ length: 8 }, (_, n) => `${n}`)
        const results = await Promise.all(
          names.flatMap(name => [
            ctx.step(name, () => `step ${name}`),
            ctx.tx(name, async tx => {
              await tx.query(book, [name])
              return `tx ${name}`
            }),
          ]),
        )
        runs.push(results.join())
        if (ctx.attempt === 1) throw new Error('not yet')
      },
    }),
  )
  await using running = flows.worker(worker)
  await running.start()

  const status = await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(runs[1]).toBe(runs[0])
  expect((await booked()).sort()).toEqual(Array.from({ length: 8 }, (_, n) => `${n}`))
})

/** Embedded, no other transaction can wait for it. */
test.runIf(onServer)('a transactional step holds its locks no longer than the lease of its worker', async () => {
  const { store, booked, book } = await openLedger()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run: async (_event, ctx) => {
        await ctx.tx('book', async tx => {
          await tx.query(book, ['too slow'])
          await new Promise(() => {})
        })
      },
    }),
  )
  await using running = flows.worker({ ...worker, leaseMs: 500, drainMs: 0 })
  await running.start()

  await (await flows.publish('OrderPlaced', { total: 99 })).waitUntilSettled()

  expect(await flows.deadLetters.list()).toMatchObject([{ attempts: 1, lastError: { code: 'transaction_timeout' } }])
  expect(await booked()).toEqual([])
})
