/** The order of the activity on a server, with concurrent writers, broken connections and positions that are drawn again. */
import { expect, test } from 'vitest'
import type { Store, StoreOptions } from '../../src/store.ts'
import type { Activity } from '../../src/workflows/insight/activity.ts'
import { pause, seeded, times } from '../chaos/seeded-random.ts'
import { postgresUrl } from '../support/engines.ts'
import { drawTo } from '../support/numbers.ts'
import { connect, onServer, openShop, outcome, type Shop, type ShopMap, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { beginActivity, positionsOf, writeActivity } from './activity-rows.ts'

/** A naive reader that reads after the last position it has seen. */
async function readNaively(
  shop: Shop,
): Promise<{ readonly seen: number[]; readonly last: number; stop(): Promise<void> }> {
  const client = await connect()
  const seen: number[] = []
  let isOn = true
  const reading = (async () => {
    while (isOn) {
      const text = shop.named('select position from ~workflow_activity where position > $1 order by position limit 256')
      const { rows } = await client.query(text, [`${seen.at(-1) ?? 0}`])
      seen.push(...rows.map(row => Number(row.position)))
      await new Promise(resolve => setTimeout(resolve, 1))
    }
  })()
  return {
    seen,
    get last() {
      return seen.at(-1) ?? 0
    },
    async stop() {
      isOn = false
      await reading
    },
  }
}

/** This many transactions of up to 40 lines, with random pauses, some of them rolled back. */
async function writeSlowly(shop: Shop, lines: number, seed: number): Promise<void> {
  const client = await connect()
  const random = seeded(seed)
  for (let left = lines; left > 0; ) {
    const count = Math.min(left, 1 + Math.floor(random() * 40))
    await beginActivity(shop, client, count)
    await pause(random, 4)
    const isKept = random() < 0.85
    await client.query(isKept ? 'commit' : 'rollback')
    if (isKept) left -= count
  }
}

/** A store whose sessions can be found and terminated. */
async function openMortal(
  { sibling, schema }: Shop,
  options: StoreOptions<ShopMap> = { pollMs: 20 },
): Promise<{ store: Store<ShopMap>; cut(): Promise<void> }> {
  const killer = await connect()
  const store = await sibling({ url: `${postgresUrl()}?application_name=${schema}`, ...options })
  return {
    store,
    async cut() {
      await killer.query('select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1', [schema])
    },
  }
}

function collect(source: AsyncIterable<Activity>): { readonly positions: number[]; readonly ended: Promise<unknown> } {
  const positions: number[] = []
  const ended = outcome(
    (async () => {
      for await (const line of source) positions.push(line.position)
    })(),
  )
  return { positions, ended }
}

test.runIf(onServer)(
  'SB-28: 10,000 lines of writers that commit in any order are each delivered once, in order',
  async () => {
    const shop = await openShop({ pollMs: 5 })
    const slow = await connect()
    const naive = await readNaively(shop)
    const watching = take(shop.store.workflows.watch({ from: 'start' }), 10_000)
    await beginActivity(shop, slow, 1)

    const writing = Promise.all(times(7, n => writeSlowly(shop, n === 0 ? 1_431 : 1_428, n)))
    await waitUntil(() => naive.last > 1)
    await slow.query('commit')
    await writing
    const positions = (await watching).map(line => line.position)

    const truth = await positionsOf(shop)
    await waitUntil(() => naive.last === truth.at(-1))
    await naive.stop()
    expect(positions).toEqual(truth)
    // The test is meaningful: a naive reader has lost lines.
    expect(naive.seen.length).toBeLessThan(truth.length)
    expect(naive.seen).not.toContain(truth[0])
  },
)

test.runIf(onServer)('watching until settled waits for lines that another transaction holds back', async () => {
  const shop = await openShop({ pollMs: 5 })
  const slow = await connect()
  await shop.query(`insert into ~workflows (first_position, last_position, correlation_id, last_type)
    values (1, 1, 'order-2', 'OrderPlaced')`)
  await beginActivity(shop, slow, 1)
  await writeActivity(shop, 2, 'order-2')
  const before = shop.store.metrics().settles_total

  const watching = collect(shop.store.workflows.get('order-2').watch({ until: 'settled' }))
  await waitUntil(() => shop.store.metrics().settles_total > before + 3)
  await slow.query('commit')
  await watching.ended

  expect(watching.positions).toHaveLength(2)
})

test.runIf(onServer)('SB-28: a watch survives broken connections, and delivers each line once', async () => {
  const shop = await openShop()
  const { store, cut } = await openMortal(shop)
  const watching = take(store.workflows.watch({ from: 'start' }), 600)

  for (let n = 0; n < 6; n++) {
    await writeActivity(shop, 100)
    await cut()
  }

  expect((await watching).map(line => line.position)).toEqual(await positionsOf(shop))
})

test.runIf(onServer)('positions that are drawn again after a crash of the server are not skipped', async () => {
  const shop = await openShop()
  // Without polling: a head that moves back while sessions live would be another log, not a crash.
  const { store, cut } = await openMortal(shop, { pollMs: 600_000, listen: false, maxConnections: 1 })
  const look = (count: number): Promise<unknown> => take(store.workflows.watch({ from: 'start' }), count)
  await writeActivity(shop, 3)
  const { positions } = collect(store.workflows.watch({ from: 'start' }))
  await waitUntil(() => store.metrics().settles_total === 2)
  // Five positions drawn and rolled back: the watch is behind them now, and a crash may release them.
  const lost = await connect()
  await beginActivity(shop, lost, 5)
  await lost.query('rollback')
  await look(1)
  await waitUntil(() => store.metrics().settles_total === 4)
  await look(1)
  await drawTo(shop.query, 'workflow_activity_position', 3)
  await cut()

  await writeActivity(shop, 5)
  await look(8)
  await waitUntil(() => positions.length === 8)

  expect(positions).toEqual(await positionsOf(shop))
})

test.runIf(onServer)(
  'a watch of activity that no longer exists gets LogRewound, and one whose oldest lines were deleted continues',
  async () => {
    const shop = await openShop()
    const { store, cut } = await openMortal(shop)
    await writeActivity(shop, 3)
    const forgetting = collect(store.workflows.watch({ from: 'start' }))
    await waitUntil(() => forgetting.positions.length === 3)
    await shop.query('delete from ~workflow_activity')
    await cut()
    await writeActivity(shop, 2)
    await waitUntil(() => forgetting.positions.length === 5)

    // As in a restored backup: another line at the position of the one that was read.
    await shop.query(`update ~workflow_activity set at = ~later(at, -3600000)`)
    await cut()
    const { error } = (await forgetting.ended) as { error?: unknown }

    expect(error).toMatchObject({ code: 'log_rewound', cursor: 5 })
    const beyond = outcome(take(store.workflows.watch({ from: 1_000 }), 1))
    expect((await beyond).error).toMatchObject({ code: 'log_rewound' })
  },
)
