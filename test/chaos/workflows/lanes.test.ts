/**
 * The lane test: publishers, workers that are killed, and workers that are stopped past their lease and then complete
 * their work. Whatever happens, the events of a workflow have their effects once, in order.
 */
import { expect, test } from 'vitest'
import { judgeAppends } from '../../../src/verify/record-appends.ts'
import { complete } from '../../../src/workflows/emit.ts'
import { NonRetryable } from '../../../src/workflows/errors.ts'
import { defineHandler } from '../../../src/workflows/handler.ts'
import { openShop, type Shop, shopEvents } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { openWorkerProcesses, type WorkerProcess, type WorkerProcessesOptions } from '../../support/worker-processes.ts'
import { long, show } from '../chaos.ts'
import { pause, pick, type Random, seeded, times } from '../seeded-random.ts'
import { checkWorkflows, effectsTable, effectText, inconsistencies, noErrors, type Rules } from './check-workflows.ts'

const rules: Rules = { wanted: { OrderPlaced: ['ship'] }, lanes: { ship: event => event.correlation_id } }
const limitMs = long ? 1_800_000 : 180_000
const deadlineMs = 60_000

test(
  'lanes lose nothing, repeat nothing and keep their order while workers are killed and return late',
  async () => {
    const seed = Math.floor(Math.random() * 2 ** 32)
    const random = seeded(seed)
    const shop = await openShop()
    await shop.query(effectsTable)
    await using workers = await openWorkerProcesses(shop, handlers(shop, random))
    for (let at = 0; at < 3; at++) await workers.start()
    await using load = publishAllTheTime(shop, random)
    const late = { accepted: 0, refused: 0 }
    const wrong = new Set<string>()

    for (let round = 0; round < (long ? 400 : 4); round++) {
      const victim = pick(random, workers.alive)
      await isAtWork(victim)
      if (round % 2 === 0) {
        workers.kill(victim)
        await workers.start()
      } else {
        const { accepted, refused } = await comeBackLate(shop, victim, random() < 0.5)
        late.accepted += accepted
        late.refused += refused
      }
      for (const each of await inconsistencies(shop.query)) wrong.add(each)
    }
    const published = await load.stop()
    await isOver(shop)
    const errors = await checkWorkflows(shop.query, rules)

    show({ seed, published, ...late, processes: workers.alive.length })
    expect({ seed, errors, wrong: [...wrong] }).toEqual({ seed, errors: noErrors, wrong: [] })
    expect(await judgeAppends(shop.store, [], { hasOthers: true })).toEqual([])
    expect(late.accepted).toBe(0)
    expect(late.refused).toBeGreaterThan(0)
  },
  limitMs,
)

test(
  'the checker detects the harm of a late worker without the fence',
  async () => {
    const random = seeded(1)
    const shop = await openShop()
    await shop.query(effectsTable)
    await using workers = await openWorkerProcesses(shop, handlers(shop, random, 0))
    const late = await workers.start()
    await workers.start()
    // After they have opened their stores, which check the functions.
    await shop.query(`create or replace function ~workflow_hold(
        p_correlations text[], p_lanes text[], p_ids uuid[], p_fences bigint[], out accepted uuid[])
      language plpgsql as 'begin accepted := p_ids; end'`)
    await using _load = publishAllTheTime(shop, random)

    // The first late outcome may be one that no other worker has reached yet: it does harm only when one does.
    const isSeen = async (): Promise<boolean> => {
      await isAtWork(late)
      const { accepted } = await comeBackLate(shop, late, true)
      return accepted > 0 && (await checkWorkflows(shop.query, rules)).repeated > 0
    }
    await waitUntil(isSeen, { deadlineMs, what: 'the checker to see an effect that came twice' })
  },
  limitMs,
)

/** One effect per event, after a while; sometimes it fails, and rarely for good. */
function handlers(shop: Shop, random: Random, failing = 0.05): WorkerProcessesOptions {
  const text = shop.named(effectText)
  return {
    leaseMs: 400,
    register({ store, name, running }) {
      const policy = { retries: 20, backoff: { baseMs: 1, maxMs: 10 } }
      store.workflows.register(
        defineHandler('ship', {
          events: shopEvents,
          on: 'OrderPlaced',
          ordered: true,
          ...policy,
          run: async (event, ctx) => {
            running.add(ctx.executionId)
            await pause(random, 8)
            running.delete(ctx.executionId)
            if (random() < failing) throw new Error('no parcel service')
            if (random() < failing / 5) throw new NonRetryable({ reason: 'no such street' })
            return complete(tx => tx.query(text, [ctx.executionId, 'ship', event.position, 0, ctx.attempt, name]))
          },
        }),
      )
    },
  }
}

interface Load extends AsyncDisposable {
  /** Returns how many events there are. */
  stop(): Promise<number>
}

function publishAllTheTime({ store }: Shop, random: Random): Load {
  let going = true
  let published = 0
  const publishers = times(3, async publisher => {
    for (let total = 0; going; total++) {
      await store.workflows.publish('OrderPlaced', { total }, { correlationId: `order-${total % 4}-${publisher % 2}` })
      published++
      await pause(random, 12)
    }
  })
  const stop = async (): Promise<number> => {
    going = false
    await Promise.all(publishers)
    return published
  }
  return { stop, [Symbol.asyncDispose]: async () => void (await stop()) }
}

function isAtWork({ running, name }: WorkerProcess): Promise<void> {
  return waitUntil(() => running.size > 0, { deadlineMs, what: `work of ${name}` })
}

/** Pauses it until others have taken over its executions, or have even completed them; returns the fate of its outcomes. */
async function comeBackLate(
  { query }: Shop,
  { database, worker, running }: WorkerProcess,
  isDone: boolean,
): Promise<{ accepted: number; refused: number }> {
  const before = database.lateOutcomes()
  const begun = [...running]
  database.pause()
  const isReplaced = async (): Promise<boolean> => {
    if (!isDone)
      return (await query(`select 1 from ~runners where id = $1 and routes <> '{}'`, [worker.id])).length === 0
    const left = await query('select 1 from ~workflow_executions where id = any($1)', [begun])
    return left.length === 0
  }
  await waitUntil(isReplaced, { deadlineMs, what: 'others to take over' })
  database.resume()
  await waitUntil(
    () => database.lateOutcomes().accepted + database.lateOutcomes().refused > before.accepted + before.refused,
    {
      deadlineMs,
      what: 'the late outcomes',
    },
  )
  const { accepted, refused } = database.lateOutcomes()
  return { accepted: accepted - before.accepted, refused: refused - before.refused }
}

/** Resolves when no work is left. Once none has ended for as long as the deadline, the error says what is left. */
async function isOver({ query }: Shop): Promise<void> {
  let left = { total: 0, first: [] as unknown[] }
  // Some rows and a count: all of a backlog, again and again, would keep the workers of this process from their work.
  const isNothingLeft = async (): Promise<boolean> => {
    const first = await query(`
      select id::text as what, state, attempt, crashes, worker, lane, deadline_at - clock_timestamp() as ends_in,
        count(*) over () as total
      from ~workflow_executions
      union all
      select 'dispatcher', owner, 0, 0, null, checkpoint::text, lease_until - clock_timestamp(), 1
      from ~consumers
      where name = 'workflows' and checkpoint < (select max(position) from ~events)
      order by state desc
      limit 10`)
    left = { total: Math.max(0, ...first.map(row => Number(row.total))), first }
    return first.length === 0
  }
  const options = { deadlineMs, everyMs: 250, what: 'the end of all work' }
  for (let before = Number.POSITIVE_INFINITY; ; before = left.total) {
    const error = await waitUntil(isNothingLeft, options).catch((late: Error) => late)
    if (!(error instanceof Error)) return
    if (left.total >= before)
      throw new Error(`${error.message}; left are ${left.total}: ${JSON.stringify(left.first, null, 1)}`)
  }
}
