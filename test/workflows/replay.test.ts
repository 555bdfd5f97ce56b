import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isRillflowError } from '../../src/core/errors.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { HandlerContext } from '../../src/workflows/steps/context.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, type ShopMap, shopEvents } from '../support/shop.ts'
import { executionStates, letTimePass, untilSuspended } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

const quick = { baseMs: 1 }
const worker = { pollMs: 20 }

test('a new attempt may take another path, and a wait on that path finds it again', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const ran: string[] = []
  const seen: string[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 2,
      backoff: quick,
      run: async (_event, ctx) => {
        const run = (name: string): Promise<string> => ctx.step(name, () => `${name} ${ran.push(name)}`)
        const beside = run('beside').then(() => run('beside 2'))
        const card = await outcome(
          ctx.step('card', () => {
            ran.push('card')
            if (ctx.attempt === 1) throw new Error('declined')
          }),
        )
        if (card.error !== undefined) await run('cash')
        else {
          await run('receipt')
          await run('cash after all')
        }
        await beside
        if (ctx.attempt === 1) throw new Error('not yet')
        await ctx.sleep(60_000)
        seen.push(await run('last'))
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()

  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)
  await letTimePass(shop, 60_000)
  const status = await flow.waitUntilSettled()

  expect(status.state).toBe('settled')
  expect([...ran].sort()).toEqual(
    ['beside', 'beside 2', 'card', 'card', 'cash', 'cash after all', 'last', 'receipt'].sort(),
  )
  expect(seen).toHaveLength(1)
})

test('code that awaits calls in another order than they ended in continues after a while', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const code = { isNew: false }
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => {
        const slow = () => ctx.step('slow', () => new Promise(resolve => setTimeout(resolve, 30)))
        const fast = () => ctx.step('fast', () => {})
        if (code.isNew) {
          await slow()
          await fast()
        } else await Promise.all([slow(), fast()])
        await ctx.sleep(60_000)
      },
    }),
  )
  await using running = workerOf(shop.store, worker)
  await running.start()
  const flow = await flows.publish('OrderPlaced', { total: 99 })
  await untilSuspended(shop)

  code.isNew = true
  await letTimePass(shop, 60_000)
  const status = await flow.waitUntilSettled()

  expect(status.state).toBe('settled')
})

type Program = Task[]
type Task =
  | { readonly do: 'step' | 'tx' | 'sleep' | 'long sleep'; readonly ms: number; readonly failures: number }
  | { readonly do: 'branches'; readonly branches: Program[]; readonly isRace: boolean }

const leaf = fc.record({
  do: fc.constantFrom('step' as const, 'step' as const, 'tx' as const, 'sleep' as const, 'long sleep' as const),
  ms: fc.integer({ min: 0, max: 12 }),
  failures: fc.constantFrom(0, 0, 0, 0, 1, 2),
})
const program: fc.Arbitrary<Program> = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: leaf },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('branches' as const),
        branches: fc.array(fc.array(leaf, { minLength: 1, maxLength: 3 }), { minLength: 2, maxLength: 4 }),
        isRace: fc.boolean(),
      }),
    },
  ),
  { minLength: 1, maxLength: 4 },
)

/** A short wait that ended right before its run was lost is not stored yet: it ends again, at another time. */
function whatCounts(lines: readonly string[]): string[] {
  const stored = lines.findLastIndex(line => !line.endsWith(' undefined'))
  return lines.map((line, at) => (at > stored ? line.replace(/ \d+ /, ' ') : line))
}

test('handlers of any shape get the same results in every run of an attempt, and no result is ever replaced', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const programs = fc.sample(program, 40)
  const results = new Map<string, unknown>()
  const received = new Map<string, string[][]>()
  let crashes = 0
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 9,
      backoff: quick,
      timeoutMs: 100_000,
      run: async (event, ctx) => {
        const lines: string[] = []
        const key = `${event.data.total} ${ctx.attempt}`
        received.set(key, [...(received.get(key) ?? []), lines])
        await runProgram(ctx, programs[event.data.total]!, `${event.data.total}`, (name, value) => {
          lines.push(`${name} ${ctx.now().getTime()} ${ctx.random()} ${JSON.stringify(value)}`)
          if (value === undefined) return
          const first = results.get(name) ?? value
          results.set(name, first)
          expect(value).toEqual(first)
        })
      },
    }),
  )
  await using running = workerOf(shop.store, { ...worker, concurrency: 8 })
  await running.start()

  await Promise.all(programs.map((_, total) => flows.publish('OrderPlaced', { total })))
  await waitUntil(
    async () => {
      await letTimePass(shop, 60_000)
      // A worker that loses its execution in the middle of a run is replaced by another one.
      if (crashes++ % 5 === 0)
        await shop.query(
          `update ~workflow_executions set state = 'ready', worker = null, crashes = 1
            where id in (select id from ~workflow_executions where state = 'running' and crashes = 0 order by id limit 1)`,
        )
      const [row] = await shop.query<{ ended: number }>(
        `select count(*)::int as ended from ~workflow_activity
          where kind in ('completed', 'parked') or outcome in ('max_retries', 'timeout')`,
      )
      return row!.ended >= programs.length
    },
    { deadlineMs: 100_000 },
  )

  expect(await executionStates(shop)).toBe('')
  expect(await shop.query('select 1 as n from ~dead_letters')).toEqual([])
  for (const [key, runs] of received) {
    const longest = runs.reduce((most, lines) => (lines.length > most.length ? lines : most))
    for (const lines of runs)
      expect([key, ...whatCounts(lines)]).toEqual([key, ...whatCounts(longest.slice(0, lines.length))])
  }
})

type Hear = (name: string, value: unknown) => void

async function runProgram(ctx: HandlerContext<ShopMap>, tasks: Program, path: string, listen: Hear): Promise<void> {
  for (const [at, task] of tasks.entries()) {
    const name = `${path}.${at}`
    if (task.do !== 'branches') await runTask(ctx, task, name, listen)
    else {
      const branches = task.branches.map((branch, n) => runProgram(ctx, branch, `${name}.${n}`, listen))
      if (task.isRace) await Promise.race(branches)
      else await Promise.all(branches)
      await Promise.allSettled(branches)
    }
  }
}

async function runTask(
  ctx: HandlerContext<ShopMap>,
  { do: what, ms, failures }: Exclude<Task, { do: 'branches' }>,
  name: string,
  listen: Hear,
): Promise<void> {
  const work = async (): Promise<string> => {
    await new Promise(resolve => setTimeout(resolve, ms))
    if (ctx.attempt <= failures) throw new Error(`no ${name}`)
    return `${name} in attempt ${ctx.attempt} as ${Math.random()}`
  }
  if (what === 'sleep') return listen(name, await ctx.sleep(name, ms))
  if (what === 'long sleep') return listen(name, await ctx.sleep(name, 60_000))
  const { value, error } = await outcome(what === 'step' ? ctx.step(name, work) : ctx.tx(name, work))
  // Half of the failures are caught, and the handler continues; but not if its run no longer counts.
  if (error !== undefined && (ms % 2 === 1 || isRillflowError(error, 'execution_lost'))) throw error
  listen(name, value)
}
