/**
 * A shop under load is moved to another server: clients append and save, a runner maintains a read model, a worker runs
 * handlers. Every acknowledged write must be on the target, once; and the same checker must detect a move that skips one
 * of its safeguards.
 */
import { expect, test } from 'vitest'
import { isRillflowError } from '../../../src/core/errors.ts'
import { identifier } from '../../../src/database/sql.ts'
import type { Store } from '../../../src/store.ts'
import type { Move } from '../../../src/transfer/move/move.ts'
import { activate, copyInto, switchOver } from '../../../src/transfer/move/move.ts'
import { isStoreMissing, writeMovedMarker } from '../../../src/transfer/move/moved-marker.ts'
import { withWritersStopped } from '../../../src/transfer/move/stop-writers.ts'
import {
  type AppendRecorder,
  judgeAppends,
  type RecordedAppends,
  recordAppends,
} from '../../../src/verify/record-appends.ts'
import { defineHandler } from '../../../src/workflows/handler.ts'
import { totals } from '../../projections/read-models.ts'
import { workerOf } from '../../support/run-worker.ts'
import { paid, placed } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { contentsOf } from '../../transfer/move/schema-contents.ts'
import { type OpenMove, openMove } from '../../transfer/move/two-servers.ts'
import { long, show } from '../chaos.ts'
import { pause, pick, type Random, seeded, times } from '../seeded-random.ts'

const rounds = long ? 40 : 1
/** What is wrong with a move that skips a safeguard. */
const found = /lost|differs/
/** Repeated until one of them does harm: most do immediately. */
const patienceMs = 150_000
const limitMs = long ? 3_600_000 : 300_000

test.each(times(rounds, seed => seed))(
  'a store moved under load loses and duplicates nothing (seed %i)',
  async seed => {
    const opened = await openMove()
    const shop = await openForBusiness(opened, seed)

    await shop.busy()
    await copyInto(opened.move)
    const moved = await switchOver(opened.move)
    await shop.closed()

    show({ ...moved, acknowledged: shop.acknowledged().count })
    expect(await judge(opened, shop)).toEqual([])
    expect(await goOn(opened, shop)).toEqual([])
  },
  limitMs,
)

test(
  'the checker detects a store that is renamed while clients write',
  async () => {
    await expect(untilFound(renameUnfenced)).resolves.toContainEqual(expect.stringMatching(found))
  },
  limitMs,
)

test(
  'the checker detects a store that is fenced and not copied to its end',
  async () => {
    await expect(untilFound(skipLastPass)).resolves.toContainEqual(expect.stringMatching(found))
  },
  limitMs,
)

/** Without the lock: a writer that has resolved the table continues to write after the last comparison. */
async function renameUnfenced(move: Move): Promise<void> {
  await copyInto(move)
  await move.source.database.transaction(async tx => {
    await tx.query(`alter schema ${identifier(move.source.schema)} rename to ${identifier(move.retired)}`)
    await writeMovedMarker(tx, move.source.schema)
  })
  await activate(move)
}

/** With the lock, but without the final comparison. */
async function skipLastPass(move: Move): Promise<void> {
  await copyInto(move)
  await withWritersStopped(move.source, {}, async ({ tx }) => {
    await tx.query(`alter schema ${identifier(move.source.schema)} rename to ${identifier(move.retired)}`)
    await writeMovedMarker(tx, move.source.schema)
  })
  await activate(move)
}

async function untilFound(naive: (move: Move) => Promise<void>): Promise<string[]> {
  const until = performance.now() + patienceMs
  for (let seed = 0; performance.now() < until; seed++) {
    const opened = await openMove()
    const shop = await openForBusiness(opened, seed)
    await shop.busy()
    await naive(opened.move)
    await shop.closed()
    const faults = await judge(opened, shop)
    if (faults.some(fault => found.test(fault))) return faults
  }
  return []
}

interface Shop {
  /** What each client has asked for, and its answers. */
  readonly records: readonly RecordedAppends[]
  /** How many events are acknowledged, and the last of their positions. */
  acknowledged(): { count: number; last: number }
  /** Answers that mean neither stored nor refused. */
  readonly surprises: unknown[]
  /** Resolves when some clients have written for a while. */
  busy(): Promise<void>
  /** Resolves when every client has noticed that the store has left. */
  closed(): Promise<void>
}

interface Visit {
  readonly at: number
}

/** Each with its own connections, like processes. */
async function openForBusiness({ open, source, store }: OpenMove, seed: number): Promise<Shop> {
  store.documents<Visit>('visits')
  await store.projections.register(totals())
  await store.schema.sync()
  const records: AppendRecorder[] = []
  const surprises: unknown[] = []
  const people: Promise<void>[] = []
  for (const number of times(3, each => each)) {
    const own = await open(source)
    const visits = own.documents<Visit>('visits')
    const random = seeded(seed * 100 + number)
    const orders = recordAppends(own as unknown as Store, `client ${number}`)
    records.push(orders)
    const act = async (turn: number): Promise<void> => {
      const stream = `order-${Math.floor(random() * 200)}`
      if (random() < 0.6) {
        const burst = times(pick(random, [1, 1, 4]), each => orders.append(`${stream}-${each}`, [placed(1), paid]))
        const failed = (await Promise.allSettled(burst)).find(each => each.status === 'rejected')
        if (failed !== undefined) throw failed.reason
        return
      }
      await orders.record([{ stream, expected: 'any', events: 1 }], async causationId => {
        const session = own.session({ causationId })
        session.documents(visits).put(`person-${number}-${turn}`, { at: turn })
        session.events.append(stream, placed(1))
        return [...(await session.save()).streams]
      })
    }
    people.push(work(act, random, surprises))
  }
  const staff = await hire(await open(source), await open(source))
  const acknowledged: Shop['acknowledged'] = () => {
    const answers = records.flatMap(({ calls }) => calls.map(({ answer }) => answer))
    const positions = answers.flatMap(each =>
      each?.kind === 'stored' ? each.results.map(({ position }) => position) : [],
    )
    return { count: positions.length, last: Math.max(0, ...positions) }
  }
  return {
    records,
    acknowledged,
    surprises,
    busy: () => waitUntil(() => acknowledged().count > 40, { what: 'business' }),
    async closed() {
      await Promise.all(people)
      await staff.dismiss()
    },
  }
}

async function work(act: (turn: number) => Promise<void>, random: Random, surprises: unknown[]): Promise<void> {
  for (let turn = 0; ; turn++) {
    try {
      await act(turn)
      await pause(random, 40)
    } catch (error) {
      if (isStoreMissing(error)) return
      if (isRillflowError(error) && error.retryable) continue
      surprises.push(error)
      return
    }
  }
}

/** A runner and a worker. */
async function hire(first: OpenMove['store'], second: OpenMove['store']): Promise<{ dismiss(): Promise<void> }> {
  await first.projections.register(totals())
  second.workflows.register(defineHandler('pack', { on: 'OrderPaid', run: async () => {} }))
  const runner = await first.start({ leaseMs: 1_000 })
  const worker = workerOf(second, { concurrency: 4, pollMs: 50, leaseMs: 1_000 })
  await worker.start()
  return {
    async dismiss() {
      await Promise.allSettled([runner.stop({ timeoutMs: 500 }), worker.stop({ drainMs: 500 })])
    },
  }
}

/** The faults found, as sentences: the tables are the same, and the appends of all clients fit the log of the target. */
async function judge({ move, source, target }: OpenMove, { records, surprises }: Shop): Promise<string[]> {
  const faults = surprises.map(surprise => `surprise: ${surprise}`)
  const [before, after] = [await contentsOf(source, move.retired), await contentsOf(target, move.target.schema)]
  for (const table of new Set([...Object.keys(before), ...Object.keys(after)]))
    if (JSON.stringify(before[table]) !== JSON.stringify(after[table])) faults.push(`table ${table} differs`)
  // A store could not be opened there: it would find the sequence behind.
  const log = { schema: { name: move.target.schema }, transaction: target.database.transaction }
  return [...faults, ...(await judgeAppends(log, records, { prefix: 'order-' }))]
}

/** On the target: all begun work completes there, and positions continue upwards. */
async function goOn({ target, open, move }: OpenMove, { acknowledged }: Shop): Promise<string[]> {
  const faults: string[] = []
  const [first, second] = [await open(target), await open(target)]
  const { last } = acknowledged()
  const { position } = await first.events.append('order-after', [placed(1), paid])
  if (position <= last) faults.push(`position ${position} comes after ${last}`)
  const staff = await hire(first, second)
  const differs = `
    select e.stream
    from (select stream, count(*) as n from ~events where type = 'OrderPlaced' group by 1) as e
    full join ~order_totals as t on t.stream = e.stream
    where t.orders is distinct from e.n`
  await waitUntil(async () => (await target.query(move.target.schema, differs)).length === 0, {
    what: 'the read model',
    deadlineMs: 100_000,
  })
  await staff.dismiss()
  return faults
}
