/**
 * The lane test: publishers, workers that are killed, workers that are stopped past their lease and end what they had begun.
 * Whatever happens, the events of a workflow have their effects once, in their order.
 */
import { expect, test } from 'vitest'
import { NonRetryable } from '../../../src/core/workflow-errors.ts'
import { complete } from '../../../src/workflows/emit.ts'
import { openShop, type Shop } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { type CrewOptions, openCrew, type Process } from '../../support/worker-processes.ts'
import { long, show } from '../chaos.ts'
import { pause, pick, type Random, seeded, times } from '../seeded-random.ts'
import { effectsTable, effectText, flawless, inconsistencies, judge, type Rules } from './check-workflows.ts'

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
    await using crew = await openCrew(shop, handlers(shop, random))
    for (let at = 0; at < 3; at++) await crew.hire()
    await using load = publishAllTheTime(shop, random)
    const late = { taken: 0, refused: 0 }
    const wrong = new Set<string>()

    for (let round = 0; round < (long ? 400 : 4); round++) {
      const victim = pick(random, crew.processes)
      await isAtWork(victim)
      if (round % 2 === 0) {
        crew.kill(victim)
        await crew.hire()
      } else {
        const { taken, refused } = await comeBackLate(shop, victim, random() < 0.5)
        late.taken += taken
        late.refused += refused
      }
      for (const each of await inconsistencies(shop.query)) wrong.add(each)
    }
    const published = await load.stop()
    await isOver(shop)
    const verdict = await judge(shop.query, rules)

    show({ seed, published, ...late, processes: crew.processes.length })
    expect({ seed, verdict, wrong: [...wrong] }).toEqual({ seed, verdict: flawless, wrong: [] })
    expect(late.taken).toBe(0)
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
    await shop.query(`create or replace function ~workflow_hold(
        p_correlations text[], p_lanes text[], p_ids uuid[], p_fences bigint[], out accepted uuid[])
      language plpgsql as 'begin accepted := p_ids; end'`)
    await using crew = await openCrew(shop, handlers(shop, random, 0))
    const late = await crew.hire()
    await crew.hire()
    await using _load = publishAllTheTime(shop, random)

    // What comes back first may be an outcome that nobody else has reached yet: it harms only when they do.
    const isSeen = async (): Promise<boolean> => {
      await isAtWork(late)
      const { taken } = await comeBackLate(shop, late, true)
      return taken > 0 && (await judge(shop.query, rules)).repeated > 0
    }
    await waitUntil(isSeen, { deadlineMs, what: 'the checker to see an effect that came twice' })
  },
  limitMs,
)

/** One effect per event, after a while; now and then it fails, and seldom for good. */
function handlers(shop: Shop, random: Random, failing = 0.05): CrewOptions {
  const text = shop.named(effectText)
  return {
    leaseMs: 400,
    register({ store, name, inHand }) {
      const policy = { retries: 20, backoff: { baseMs: 1, maxMs: 10 } }
      store.workflows.on('OrderPlaced', { name: 'ship', ordered: true, ...policy }, async (event, ctx) => {
        inHand.add(ctx.executionId)
        await pause(random, 8)
        inHand.delete(ctx.executionId)
        if (random() < failing) throw new Error('no parcel service')
        if (random() < failing / 5) throw new NonRetryable({ reason: 'no such street' })
        return complete(tx => tx.query(text, [ctx.executionId, 'ship', event.position, 0, ctx.attempt, name]))
      })
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

function isAtWork({ inHand, name }: Process): Promise<void> {
  return waitUntil(() => inHand.size > 0, { deadlineMs, what: `work of ${name}` })
}

/** Stops it in the middle until others have taken what it has, or have even done it; returns what came of its outcomes. */
async function comeBackLate(
  { query }: Shop,
  { gate, worker, inHand }: Process,
  isDone: boolean,
): Promise<{ taken: number; refused: number }> {
  const before = gate.late()
  const begun = [...inHand]
  gate.close()
  const isReplaced = async (): Promise<boolean> => {
    if (!isDone) return (await query('select 1 from ~workflow_workers where owner = $1', [worker.id])).length === 0
    const left = await query('select 1 from ~workflow_executions where id = any($1)', [begun])
    return left.length === 0
  }
  await waitUntil(isReplaced, { deadlineMs, what: 'others to take over' })
  gate.open()
  await waitUntil(() => gate.late().taken + gate.late().refused > before.taken + before.refused, {
    deadlineMs,
    what: 'the late outcomes',
  })
  const { taken, refused } = gate.late()
  return { taken: taken - before.taken, refused: refused - before.refused }
}

/** Resolves when nothing is left to be done; tells what is, if that does not come. */
async function isOver({ query }: Shop): Promise<void> {
  let left: object[] = []
  const isNothingLeft = async (): Promise<boolean> => {
    left = await query(`
      select id::text as what, state, attempt, crashes, worker, lane, deadline_at - clock_timestamp() as ends_in
      from ~workflow_executions
      union all
      select 'dispatcher', owner, 0, 0, null, checkpoint::text, lease_until - clock_timestamp()
      from ~consumers
      where name = 'workflows' and checkpoint < (select max(position) from ~events)`)
    return left.length === 0
  }
  await waitUntil(isNothingLeft, { deadlineMs, what: 'the end of all work' }).catch((error: Error) => {
    throw new Error(`${error.message}; left are ${JSON.stringify(left.slice(0, 10), null, 1)}`)
  })
}
