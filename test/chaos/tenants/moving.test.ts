/**
 * A shop at work is moved to another server: people append and save, a daemon keeps a read model, a worker runs handlers.
 * Whatever they were told is stored must be on the target, once; and a move that leaves out one of its safeguards must be
 * found out by the same judge.
 */
import { expect, test } from 'vitest'
import { isRillflowError } from '../../../src/core/errors.ts'
import { identifier } from '../../../src/database/sql.ts'
import type { Move } from '../../../src/transfer/move/move.ts'
import { activate, copyInto, switchOver } from '../../../src/transfer/move/move.ts'
import { isStoreMissing, writeMovedMarker } from '../../../src/transfer/move/moved-marker.ts'
import { withWritersStopped } from '../../../src/transfer/move/stop-writers.ts'
import { totals } from '../../projections/read-models.ts'
import { paid, placed } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { contentsOf } from '../../transfer/move/judge.ts'
import { type OpenMove, openMove } from '../../transfer/move/servers.ts'
import { long, show } from '../chaos.ts'
import { pause, pick, type Random, seeded, times } from '../pace.ts'

const rounds = long ? 40 : 1
/** What is wrong with a move that leaves out a safeguard. */
const found = /lost|differs/
/** Until one of them was in somebody's way: most are at once. */
const patienceMs = 150_000
const limitMs = long ? 3_600_000 : 300_000

test.each(times(rounds, seed => seed))(
  'a shop that is moved at work loses nothing and doubles nothing (seed %i)',
  async seed => {
    const opened = await openMove()
    const shop = await openForBusiness(opened, seed)

    await shop.busy()
    await copyInto(opened.move)
    const moved = await switchOver(opened.move)
    await shop.closed()

    show({ ...moved, written: shop.written.length })
    expect(await judge(opened, shop)).toEqual([])
    expect(await goOn(opened, shop)).toEqual([])
  },
  limitMs,
)

test(
  'the judge finds out a store that is renamed while people write',
  async () => {
    await expect(untilFound(renameUnfenced)).resolves.toContainEqual(expect.stringMatching(found))
  },
  limitMs,
)

test(
  'the judge finds out a store that is fenced and not copied to its end',
  async () => {
    await expect(untilFound(skipLastPass)).resolves.toContainEqual(expect.stringMatching(found))
  },
  limitMs,
)

/** Without the lock: who has looked the table up goes on writing after the last look. */
async function renameUnfenced(move: Move): Promise<void> {
  await copyInto(move)
  await move.source.database.transaction(async tx => {
    await tx.query(`alter schema ${identifier(move.source.schema)} rename to ${identifier(move.retired)}`)
    await writeMovedMarker(tx, move.source.schema)
  })
  await activate(move)
}

/** With the lock, and without what it is for. */
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

interface Written {
  readonly stream: string
  readonly version: number
  readonly position: number
}

interface Shop {
  /** What people were told is stored. */
  readonly written: Written[]
  /** What they were told that is neither stored nor gone. */
  readonly surprises: unknown[]
  /** Resolves when some have been at it for a while. */
  busy(): Promise<void>
  /** Resolves when everybody has noticed that the store has left. */
  closed(): Promise<void>
}

interface Visit {
  readonly at: number
}

/** Each with connections of its own, as processes have them. */
async function openForBusiness({ open, source, store }: OpenMove, seed: number): Promise<Shop> {
  store.documents<Visit>('visits')
  await store.projections.register(totals())
  await store.schema.sync()
  const written: Written[] = []
  const surprises: unknown[] = []
  const people: Promise<void>[] = []
  for (const number of times(3, each => each)) {
    const own = await open(source)
    const visits = own.documents<Visit>('visits')
    const random = seeded(seed * 100 + number)
    const act = async (turn: number): Promise<Written[]> => {
      const stream = `order-${Math.floor(random() * 200)}`
      if (random() < 0.6) {
        const burst = times(pick(random, [1, 1, 4]), each => own.events.append(`${stream}-${each}`, [placed(1), paid]))
        const told = await Promise.allSettled(burst)
        const failed = told.find(each => each.status === 'rejected')
        written.push(
          ...told.flatMap((each, at) =>
            each.status === 'fulfilled' ? [{ ...each.value, stream: `${stream}-${at}` }] : [],
          ),
        )
        if (failed !== undefined) throw failed.reason
        return []
      }
      const session = own.session()
      session.documents(visits).put(`person-${number}-${turn}`, { at: turn })
      session.events.append(stream, placed(1))
      return [...(await session.save()).streams]
    }
    people.push(work(act, random, { written, surprises }))
  }
  const staff = await hire(await open(source), await open(source))
  return {
    written,
    surprises,
    busy: () => waitUntil(() => written.length > 40, { what: 'business' }),
    async closed() {
      await Promise.all(people)
      await staff.dismiss()
    },
  }
}

async function work(
  act: (turn: number) => Promise<Written[]>,
  random: Random,
  { written, surprises }: Pick<Shop, 'written' | 'surprises'>,
): Promise<void> {
  for (let turn = 0; ; turn++) {
    try {
      written.push(...(await act(turn)))
      await pause(random, 40)
    } catch (error) {
      if (isStoreMissing(error)) return
      if (isRillflowError(error) && error.retryable) continue
      surprises.push(error)
      return
    }
  }
}

/** A daemon and a worker. */
async function hire(first: OpenMove['store'], second: OpenMove['store']): Promise<{ dismiss(): Promise<void> }> {
  await first.projections.register(totals())
  second.workflows.on('OrderPaid', { name: 'pack' }, async () => {})
  const daemon = first.daemon({ leaseMs: 1_000 })
  const worker = second.workflows.worker({ concurrency: 4, pollMs: 50, leaseMs: 1_000 })
  await Promise.all([daemon.start(), worker.start()])
  return {
    async dismiss() {
      await Promise.allSettled([daemon.stop({ stopMs: 500 }), worker.stop({ drainMs: 500 })])
    },
  }
}

/** What is wrong, in words. */
async function judge({ move, source, target }: OpenMove, { written, surprises }: Shop): Promise<string[]> {
  const faults = surprises.map(surprise => `surprise: ${surprise}`)
  const [before, after] = [await contentsOf(source, move.retired), await contentsOf(target, move.target.schema)]
  for (const table of new Set([...Object.keys(before), ...Object.keys(after)]))
    if (JSON.stringify(before[table]) !== JSON.stringify(after[table])) faults.push(`table ${table} differs`)
  const events = await target.query<Written>(
    move.target.schema,
    'select stream, version::integer, position from ~events',
  )
  const stored = new Map(events.map(event => [`${event.stream} ${event.version}`, event.position]))
  if (stored.size !== events.length) faults.push('events are doubled')
  for (const { stream, version, position } of written)
    if (stored.get(`${stream} ${version}`) !== position) faults.push(`${stream} ${version} at ${position} is lost`)
  return faults
}

/** On the target: everything that was begun comes to its end there, and positions go on upwards. */
async function goOn({ target, open, move }: OpenMove, { written }: Shop): Promise<string[]> {
  const faults: string[] = []
  const [first, second] = [await open(target), await open(target)]
  const last = written.reduce((max, { position }) => (position > max ? position : max), 0)
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
