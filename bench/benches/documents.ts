/** Documents by id, in bulk and by query, and saves of a document with an event, against Pongo and hand-written SQL. */
import { randomUUID } from 'node:crypto'
import { openStore as openSources } from '../../src/store.ts'
import type { Bench, BenchContext } from '../harness/bench.ts'
import { closedLoop } from '../harness/closed-loop.ts'
import type { PeerName } from '../harness/report.ts'
import type { Store } from '../harness/rillflow.ts'
import { type Contestant, compare, interleave, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startAfresh, startBenchServer } from '../harness/server.ts'
import { openByHand } from '../peers/documents-by-hand.ts'
import { openPongo, type Pongo, pongoTable } from '../peers/pongo.ts'
import { storeTables } from '../peers/rillflow-append.ts'
import { type OurCustomers, openCustomers } from '../peers/rillflow-documents.ts'
import { makeSavedTable, openFourRoundTrips, openPipelined, type Saver } from '../peers/save-by-hand.ts'
import { buildOurs, buildPongo } from '../rigs/query-building.ts'
import {
  type Customer,
  type CustomerStore,
  cityOf,
  customer,
  customers,
  emailOf,
  type Item,
  idOf,
} from '../workloads/customers.ts'
import { orderEvent, StreamCursor } from '../workloads/orders.ts'

const poolSize = 32
const bulk = 10_000

interface CustomerStores {
  readonly ours: OurCustomers
  /** The same without the index on the whole body, as Pongo has none. */
  readonly lean: OurCustomers
  readonly byHand: CustomerStore
  readonly leanByHand: CustomerStore
  readonly pongo: Pongo
}

/** What a case compares: our contestant with a peer's. */
type Pair = readonly [caseName: string, ours: string, peer: string, peerName: PeerName, peerNote?: string | undefined]

export const bench: Bench = {
  about: 'documents per second, each caller waiting for its answer before it asks again',
  async run(context) {
    await using server = await startBenchServer(context.report)
    await using store = await server.openStore()
    const ours = openCustomers(store, 'customers', true)
    const lean = openCustomers(store, 'lean_customers', false)
    await ours.collection.ready()
    await lean.collection.ready()
    const hand = { like: 'rillflow.customers', poolSize }
    await using byHand = await openByHand(server.url, { ...hand, table: 'byhand.customers', gin: true })
    await using leanByHand = await openByHand(server.url, { ...hand, table: 'byhand.lean_customers', gin: false })
    await using pongo = await openPongo(server.url, poolSize)
    const stores = { ours, lean, byHand, leanByHand, pongo }

    const count = context.quick ? 10_000 : 100_000
    await runBulk(context, server, stores)
    await fill(server, stores, count)
    await runReads(context, server, stores, count)
    await using wider = await server.openStore({ maxConnections: poolSize })
    await runWrites(context, server, stores, openCustomers(wider, 'customers', true), count)
    await runBuilding(context, server)
    await runSaves(context, server, store)
  },
}

const tables = [
  'rillflow.customers',
  'rillflow.lean_customers',
  'byhand.customers',
  'byhand.lean_customers',
  pongoTable,
]

async function runBulk({ quick, report }: BenchContext, server: BenchServer, stores: CustomerStores): Promise<void> {
  const items: Item[] = [...customers(bulk)]
  const contestants = Object.entries(stores).map(([name, each]: [string, CustomerStore]) => ({
    name,
    async run() {
      const started = performance.now()
      await each.putMany(items)
      return { value: bulk / ((performance.now() - started) / 1000) }
    },
  }))
  const samples = await interleave(contestants, {
    rounds: quick ? 3 : 7,
    before: () => startAfresh(server.admin, tables),
  })
  const pairs: Pair[] = [
    ['bulk 10k', 'ours', 'byHand', 'hand-written'],
    ['bulk 10k', 'ours', 'pongo', 'pongo', 'no gin'],
    ['bulk 10k, gin: false', 'lean', 'leanByHand', 'hand-written'],
    ['bulk 10k, gin: false', 'lean', 'pongo', 'pongo'],
  ]
  reportPairs(report, samples, pairs)
  report.table('documents, bulk')
}

/** The same documents for all. */
async function fill(server: BenchServer, { ours }: CustomerStores, count: number): Promise<void> {
  const { admin } = server
  await startAfresh(admin, tables)
  await ours.collection.importMany(customers(count))
  for (const table of ['rillflow.lean_customers', 'byhand.customers', 'byhand.lean_customers'])
    await admin.query(`insert into ${table} select * from rillflow.customers`)
  await admin.query(`
    insert into ${pongoTable} (_id, data)
    select id, body || jsonb_build_object('_id', id, '_version', '1') from rillflow.customers`)
  for (const table of tables) await admin.query(`vacuum analyze ${table}`)
}

type Call = (n: number, caller: number) => Promise<unknown>

async function runReads(context: BenchContext, server: BenchServer, all: CustomerStores, count: number): Promise<void> {
  const { report } = context
  const { ours, byHand, pongo } = all
  await server.admin.query('checkpoint')
  const before = async (): Promise<void> => {}
  for (const callers of [1, 64]) {
    const calls: Record<string, () => Call> = {
      ours: () => n => ours.get(idOf(n)),
      byHand: () => n => byHand.get(idOf(n)),
      pongo: () => n => pongo.get(idOf(n)),
    }
    const samples = await race(context, calls, { count, callers, before, isShort: true })
    reportPairs(report, samples, againstBoth(callers === 1 ? 'get' : `get, ${callers} callers`))
  }
  for (const which of ['byEmail', 'byCity'] as const) {
    const operand = (n: number): string => (which === 'byEmail' ? emailOf(n) : cityOf(n))
    const calls: Record<string, () => Call> = {
      ours: () => n => ours[which](operand(n)),
      compiled: () => n => ours.compiled[which](operand(n)),
      byHand: () => n => byHand[which](operand(n)),
      pongo: () => n => pongo[which](operand(n)),
      filtered: () => n => pongo.filtered[which](operand(n)),
    }
    const samples = await race(context, calls, { count, callers: 1, before, isShort: true })
    const name = which === 'byEmail' ? 'query of 1' : 'query of 50'
    reportPairs(report, samples, [
      ...againstBoth(name, 'SQL filter'),
      [`${name}, its filter`, 'ours', 'filtered', 'pongo', 'its filter'],
      [`${name}, compiled`, 'compiled', 'byHand', 'hand-written'],
      [`${name}, compiled`, 'compiled', 'pongo', 'pongo', 'SQL filter'],
      [`${name}, compiled`, 'compiled', 'ours', 'plain query', 'ours'],
    ])
  }
  report.table(`documents, reading ${count}`)
}

async function runWrites(
  context: BenchContext,
  server: BenchServer,
  all: CustomerStores,
  wide: OurCustomers,
  count: number,
): Promise<void> {
  const { report } = context
  await wide.collection.ready()
  const before = async (): Promise<void> => {
    for (const table of tables) await server.admin.query(`vacuum ${table}`)
    await server.admin.query('checkpoint')
  }
  const kinds: Record<string, (target: CustomerStore, n: number) => Promise<unknown>> = {
    put: (target, n) => target.put(idOf(n), customer(n)),
    patch: (target, n) => target.patch(idOf(n), 'pro'),
  }
  for (const [kind, write] of Object.entries(kinds)) {
    const { ours, byHand } = all
    const busy = Object.fromEntries(
      Object.entries({ ours, byHand, wide }).map(([name, store]) => [name, () => (n: number) => write(store, n)]),
    )
    const together = await race(context, busy, { count, callers: 64, before })
    reportPairs(report, together, [
      [`${kind}, 64 callers`, 'ours', 'byHand', 'hand-written'],
      [`${kind}, 64 callers, pool of ${poolSize}`, 'wide', 'byHand', 'hand-written'],
    ])
    const names = Object.keys(all) as (keyof CustomerStores)[]
    const calls = Object.fromEntries(names.map(name => [name, () => (n: number) => write(all[name], n)]))
    const samples = await race(context, calls, { count, callers: 1, before })
    reportPairs(report, samples, [
      ...againstBoth(kind, 'no gin'),
      [`${kind}, gin: false`, 'lean', 'leanByHand', 'hand-written'],
      [`${kind}, gin: false`, 'lean', 'pongo', 'pongo'],
    ])
  }
  report.table(`documents, writing over ${count}`)
}

async function runBuilding({ quick, report }: BenchContext, { url }: BenchServer): Promise<void> {
  const times = quick ? 5000 : 20_000
  await using store = await openSources({ url })
  const collection = store.documents<Customer>('customers')
  const contestants: Contestant[] = [
    { name: 'ours', run: async () => buildOurs(collection, times) },
    { name: 'pongo', run: async () => buildPongo(times) },
  ]
  const samples = await interleave(contestants, { rounds: quick ? 3 : 7 })
  const comparison = compare(samples.get('ours')!, samples.get('pongo')!, 'less')
  report.result({ case: 'building a query', peerName: 'pongo', unit: 'µs', ...comparison })
  report.table('documents, building')
}

async function runSaves(context: BenchContext, server: BenchServer, store: Store): Promise<void> {
  const { report } = context
  const saved = store.documents<Customer>('saved')
  await saved.ready()
  await makeSavedTable(server.admin)
  const ours: Saver['save'] = async (id, data, stream, expected, event) => {
    await using session = store.session()
    session.documents(saved).put(id, data)
    session.events.append(stream, event, { expected })
    await session.save()
  }
  await using pipelined = await openPipelined(server.url)
  await using roundTrips = openFourRoundTrips(server.url, poolSize)
  const before = (): Promise<void> => startAfresh(server.admin, [...storeTables, 'rillflow.saved', 'byhand.saved'])
  const cases = [
    { name: 'save', callers: 1, peer: pipelined, peerName: 'hand-written', peerNote: 'pipelined' },
    { name: 'save, 64 callers', callers: 64, peer: roundTrips, peerName: 'round trips', peerNote: undefined },
  ] as const
  for (const { name, callers, peer, peerName, peerNote } of cases) {
    const calls = { ours: savingWith(ours), peer: savingWith(peer.save) }
    const samples = await race(context, calls, { count: 1_000_000_000, callers, before })
    reportPairs(report, samples, [[name, 'ours', 'peer', peerName, peerNote]])
  }
  report.table('documents, saving one with an event')
}

/** Its calls of one run: each caller fills streams of its own, from their beginnings. */
function savingWith(save: Saver['save']): () => Call {
  return () => {
    const cursors = new Map<number, StreamCursor>()
    return (n, caller) => {
      if (!cursors.has(caller)) cursors.set(caller, new StreamCursor())
      const { stream, version } = cursors.get(caller)!.next(1)
      return save(randomUUID(), customer(n), stream, version, orderEvent(n))
    }
  }
}

function race(
  { quick }: BenchContext,
  calls: Record<string, () => Call>,
  { count, callers, before, isShort = false }: RaceOptions,
): Promise<Map<string, Sample[]>> {
  // Where nothing has to be set right in between, many short rounds say more than a few long ones.
  const [rounds, ms, warmUpMs] = quick
    ? isShort
      ? [15, 100, 20]
      : [5, 300, 100]
    : isShort
      ? [21, 700, 50]
      : [7, 2000, 250]
  const contestants = Object.entries(calls).map(([name, start]) => ({
    name,
    run() {
      const call = start()
      return closedLoop({ callers, ms, warmUpMs }, caller => call(Math.floor(Math.random() * count), caller))
    },
  }))
  return interleave<Sample>(contestants, { rounds, before })
}

interface RaceOptions {
  readonly count: number
  readonly callers: number
  readonly before: () => Promise<void>
  readonly isShort?: boolean
}

function againstBoth(name: string, pongoNote?: string): Pair[] {
  return [
    [name, 'ours', 'byHand', 'hand-written'],
    [name, 'ours', 'pongo', 'pongo', pongoNote],
  ]
}

function reportPairs(
  report: BenchContext['report'],
  samples: ReadonlyMap<string, Sample[]>,
  pairs: readonly Pair[],
): void {
  for (const [name, ours, peer, peerName, peerNote] of pairs) {
    const comparison = compare(samples.get(ours)!, samples.get(peer)!)
    report.result({ case: name, peerName, peerNote, unit: name.startsWith('save') ? 'saves/s' : '1/s', ...comparison })
  }
}
