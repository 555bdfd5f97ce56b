/**
 * The join race: all events of a join arrive at the same moment, some twice, some as a branch that ends without an event.
 * Whatever the interleaving, the join completes exactly once.
 *
 * `RILLFLOW_CHAOS=long` for a thousand joins; otherwise as many as every run can afford.
 */

import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import type { Executor } from '../../../src/database/database.ts'
import { openPostgres } from '../../../src/database/postgres/postgres.ts'
import { sql } from '../../../src/database/sql.ts'
import type { Log } from '../../../src/events/log.ts'
import { enqueue } from '../../../src/workflows/dispatch/enqueue.ts'
import { defineHandler } from '../../../src/workflows/handler.ts'
import { defineJoin } from '../../../src/workflows/joins/join.ts'
import { type BatchMoves, moveBatches } from '../../../src/workflows/joins/joins.ts'
import { loadRoutes, type Route } from '../../../src/workflows/routes.ts'
import { workflowNames } from '../../../src/workflows/schema.ts'
import { openConsumerParts } from '../../support/consumer-parts.ts'
import { postgresUrl } from '../../support/engines.ts'
import { onServer } from '../../support/shop.ts'
import {
  checkEvents,
  expectNothingOpen,
  type OrderChecks,
  openOrderChecks,
  settled,
} from '../../workflows/order-checks.ts'
import { long } from '../chaos.ts'
import { pause, type Random, seeded } from '../seeded-random.ts'

const width = 16
const timeout = long ? 60 * 60_000 : 120_000
const none = { branches: [], arrivals: [], emitted: [] }

/** One step of a batch, in its own transaction. */
type Happening = (executor: Executor) => Promise<number>

interface Race extends OrderChecks {
  readonly log: Log
  /** The steps of one batch: each branch ends with an event, perhaps twice, or with nothing. The first one with an event. */
  prepare(correlationId: string, random: Random): Promise<Happening[]>
}

async function openRace(): Promise<Race> {
  // As many connections as arrivals, or they would queue before they can meet.
  const database = onServer ? await openPostgres({ url: postgresUrl(), maxConnections: width }) : undefined
  const checks = await openOrderChecks(database === undefined ? {} : { database })
  const { log } = openConsumerParts(checks)
  checks.flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => {} }))
  await checks.flows.sync()
  const [route] = await loadRoutes(log, log.database)
  let position = 1
  return { ...checks, log, prepare }

  async function prepare(correlationId: string, random: Random): Promise<Happening[]> {
    const id = randomUUID()
    await checks.query(
      "insert into ~workflows (correlation_id, first_position, last_position, last_type) values ($1, 1, 1, 'OrderPlaced')",
      [correlationId],
    )
    const places = Array.from({ length: width }, (_, index) => [{ id, index, size: width }])
    const opened = [{ id, size: width, join: undefined, outer: [] }]
    const emitted = { append: undefined, places, types: ['CheckAsked'], opened, correlationId, position: position++ }
    await move(log, route!, log.database, { ...none, emitted: [emitted] })
    return shuffled(
      random,
      places.flatMap((batches, index) => happeningsOf(batches, index)),
    )

    function happeningsOf(batches: (typeof places)[number], index: number): Happening[] {
      const cause = { correlationId, position: position++, batches }
      const branches = [{ ...cause, change: -1, isFailed: false, emits: [] }]
      const arrivals = index === 0 || random() < 0.8 ? [{ ...cause, route: route! }] : []
      const again = arrivals.length > 0 && random() < 0.3 ? [{ ...none, arrivals }] : []
      return [{ ...none, branches, arrivals }, ...again].map(moves => executor => move(log, route!, executor, moves))
    }
  }
}

async function move(log: Log, route: Route, executor: Executor, moves: BatchMoves): Promise<number> {
  const { joined } = await moveBatches(log, executor, 'race', () => [route], moves)
  return enqueue(log, executor, 'race', joined)
}

/** Like dispatch and completion: under the lock of the workflow row. */
async function locked({ log }: Race, correlationId: string, happening: Happening): Promise<number> {
  return log.database.transaction(async tx => {
    await tx.run(sql`/* test.lock */
      select 1
      from ${workflowNames(log).workflows}
      where correlation_id = ${correlationId}::text
      for update`)
    return happening(tx)
  })
}

/** Counts, then decides, without a lock. */
async function naive({ log }: Race, _: string, happening: Happening): Promise<number> {
  return happening(log.database)
}

/** Runs all steps at once; returns how often each join was complete, on request up to the first wrong one. */
async function run(
  race: Race,
  how: typeof locked,
  { joins, seed, isLooking = false }: { joins: number; seed: number; isLooking?: boolean },
): Promise<number[]> {
  const random = seeded(seed)
  const fired: number[] = []
  for (let n = 0; n < joins && !(isLooking && fired.some(count => count !== 1)); n++) {
    const correlationId = `order-${n}`
    const happenings = await race.prepare(correlationId, random)
    const counts = await Promise.all(
      happenings.map(async happening => {
        await pause(random, 2)
        return how(race, correlationId, happening)
      }),
    )
    fired.push(counts.reduce((sum, count) => sum + count, 0))
  }
  return fired
}

test(`SB-11: ${width} simultaneous arrivals, with duplicates and empty branches, complete the join exactly once`, {
  timeout,
}, async () => {
  const joins = long ? 1000 : 8
  const seed = Math.floor(Math.random() * 2 ** 31)
  const race = await openRace()

  const fired = await run(race, locked, { joins, seed })

  expect(fired, `seed ${seed}`).toEqual(fired.map(() => 1))
  const [stored] = await race.query(`
    select
      (select count(*)::int from ~workflow_joins where state = 'closed' and arrived + empty = size) as joins,
      (select count(*)::int from ~workflow_executions where join_id = id) as executions,
      (select count(*)::int from ~workflow_join_entries where outcome in ('arrived', 'empty')) as entries,
      (select sum(open)::int from ~workflow_branches) as branches,
      (select sum(open)::int from ~workflows) as open`)
  expect(stored).toEqual({ joins, executions: joins, entries: joins * width, branches: 0, open: joins })
})

test('SB-11: without the lock on the workflow row the race is lost, and this test detects it', {
  timeout,
}, async () => {
  const race = await openRace()

  const fired = await run(race, naive, { joins: 500, seed: 1, isLooking: true })

  expect(fired.filter(count => count !== 1).length).toBeGreaterThan(0)
})

test('SB-11: events of many batches, published at once by two processes, are joined once each, in order', {
  timeout,
}, async () => {
  const batches = long ? 1000 : 4
  const checks = await openOrderChecks()
  const other = await checks.second()
  const seen = new Map<string, number[][]>()
  for (const flows of [checks.flows, other]) {
    flows.register(
      defineHandler('check', {
        events: checkEvents,
        on: 'CheckAsked',
        run: (event, { emit }) => emit('OrderChecked', event.data),
      }),
    )
    flows.register(
      defineJoin('clear', {
        events: checkEvents,
        on: 'OrderChecked',
        run: (events, { correlationId }) => {
          const runs = seen.get(correlationId) ?? []
          runs.push(events.map(event => Number(event.data.item)))
          seen.set(correlationId, runs)
        },
      }),
    )
  }
  await using worker = checks.flows.worker()
  await using second = other.worker()
  await Promise.all([worker.start(), second.start()])

  for (let n = 0; n < batches; n += 4) {
    const some = Array.from({ length: 4 }, (_, at) => `order-${n + at}`)
    await Promise.all(some.map(correlationId => publishAll(correlationId)))
    for (const correlationId of some) await settled(checks.flows.get(correlationId))
  }

  const inOrder = inOrderOf(width)
  expect([...seen.values()]).toEqual(Array.from({ length: batches }, () => [inOrder]))
  await expectNothingOpen(checks)

  async function publishAll(correlationId: string): Promise<void> {
    const id = randomUUID()
    const publish = (index: number, type: 'CheckAsked' | 'OrderChecked'): Promise<unknown> =>
      (index % 2 === 0 ? checks.flows : other).publish(
        type,
        { item: String(index) },
        { correlationId, batch: { id, index, size: width } },
      )
    // Some are published directly, some through a handler, and some of those twice.
    await Promise.all(
      inOrderOf(width).flatMap(index =>
        index % 3 === 0
          ? [publish(index, 'OrderChecked'), publish(index, 'OrderChecked')]
          : [publish(index, 'CheckAsked')],
      ),
    )
  }
})

function inOrderOf(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index)
}

function shuffled<T>(random: Random, given: readonly T[]): T[] {
  return given
    .map(item => ({ item, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item)
}
