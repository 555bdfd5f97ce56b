/** Tenants: making them, appending to many and to one, their cost at rest, export and import, and moves. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { Bench, BenchContext } from '../harness/bench.ts'
import { closedLoop, type LoadSample } from '../harness/closed-loop.ts'
import { runProgram } from '../harness/program.ts'
import { shown } from '../harness/report.ts'
import { openStore, type Store, type StoreOptions, type TenantedStore } from '../harness/rillflow.ts'
import { compare, interleave, median, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startAfresh, startBenchServer } from '../harness/server.ts'
import { statementsPerSecond } from '../harness/statement-rate.ts'
import { copyIn, copyToFile, orderRows } from '../peers/copy.ts'
import { storeTables } from '../peers/rillflow-append.ts'
import type { TenantHeapAnswer, TenantHeapInput } from '../programs/tenant-heap.ts'
import { ordersProjection } from '../rigs/orders-projection.ts'
import { type MoveSample, openMover } from '../rigs/tenant-move.ts'
import { orderEvent, orders, StreamCursor } from '../workloads/orders.ts'

const many = 100
const callers = 64
/** Number of tenants made in one run of a contestant. */
const block = 25
const pool = 32

export const bench: Bench = {
  about: `making ${many} tenants, appending to them, their cost at rest, and the ways in and out`,
  async run(context) {
    await using server = await startBenchServer(context.report)
    const tenants = await provision(context, server)
    await append(context, server, tenants)
    if (context.only === 'append') return
    await rest(context, server, tenants)
    await heap(context, server, tenants)
    await inAndOut(context, server)
    await move(context, server)
  },
}

function openTenanted(server: BenchServer, options: StoreOptions = {}): Promise<TenantedStore> {
  return openStore({ url: server.url, migrate: true, ...options, tenancy: 'schema' })
}

/** Makes the tenants that the other cases use. */
async function provision({ quick, report }: BenchContext, server: BenchServer): Promise<string[]> {
  const made: string[] = []
  await using store = await openTenanted(server)
  const make = async (atOnce: number): Promise<Sample> => {
    const names = Array.from({ length: block }, (_, n) => `shop-${made.length + n}`)
    made.push(...names)
    const queue = [...names]
    const started = performance.now()
    const work = async (): Promise<void> => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) await store.tenants.ensure(next)
    }
    await Promise.all(Array.from({ length: atOnce }, work))
    return { value: (performance.now() - started) / block }
  }
  const contestants = [1, 4].map(atOnce => ({ name: `${atOnce}`, run: () => make(atOnce) }))
  const samples = await interleave(contestants, { rounds: (many / block) * (quick ? 0.5 : 1) })
  const result = compare(samples.get('4')!, samples.get('1')!, 'less')
  const against = { peerName: 'ours', peerNote: 'one after another' } as const
  report.result({ case: 'made 4 at once', ...against, unit: 'ms a tenant', ...result })
  report.table(`tenants, ${made.length} of them`)
  for (const tenant of made.splice(many)) await store.tenants.drop(tenant, { force: true })
  return made
}

/** Every call goes to the next of the tenants; in one schema the same calls go to as many streams. */
async function append({ quick, report }: BenchContext, server: BenchServer, tenants: string[]): Promise<void> {
  await using store = await openTenanted(server)
  await using wider = await openTenanted(server, { maxConnections: pool })
  await using single = await server.openStore()
  const groups = new Map<string, { size: number; perSecond: number; cores: number }[]>()
  const ms = quick ? 1_000 : 3_000
  // A process looks up a tenant's server and schema when it first uses it.
  for (const tenanted of [store, wider])
    await Promise.all(tenants.map(tenant => tenanted.tenant(tenant).events.append('first', [orderEvent(0)])))
  const contestant = (name: string, whole: Store, storeOf: (at: number) => Store) => ({
    name,
    async run(): Promise<LoadSample> {
      const before = whole.metrics()
      const started = performance.now()
      const sample = await load(ms, tenants.length, storeOf)
      const seconds = (performance.now() - started) / 1000
      const after = whole.metrics()
      const count = after.event_append_groups_total - before.event_append_groups_total
      const size = (after.event_appends_total - before.event_appends_total) / count
      groups.set(name, [...(groups.get(name) ?? []), { size, perSecond: count / seconds, cores: sample.cores }])
      return sample
    },
  })
  const samples = await interleave(
    [
      contestant('many', store, at => store.tenant(tenants[at]!)),
      contestant(`many, pool of ${pool}`, wider, at => wider.tenant(tenants[at]!)),
      contestant('one', store, () => store.tenant(tenants[0]!)),
      contestant('one schema', single, () => single),
    ],
    { rounds: quick ? 3 : 7, before: async () => void (await server.admin.query('checkpoint')) },
  )
  const peer = samples.get('one schema')!
  for (const [name, cases] of [
    ['many', `${tenants.length} tenants`],
    [`many, pool of ${pool}`, `${tenants.length} tenants, pool of ${pool}`],
    ['one', '1 tenant'],
  ] as const) {
    const against = { peerName: 'ours', peerNote: 'no tenants' } as const
    report.result({ case: cases, ...against, unit: 'events/s', ...compare(samples.get(name)!, peer) })
  }
  report.table(`tenants, append by ${callers} callers`)
  for (const [name, list] of groups) {
    const of = (pick: (each: (typeof list)[number]) => number): number => median(list.map(pick))
    const grouped = `${of(each => each.size).toFixed(1)} appends per group, ${shown(Math.round(of(each => each.perSecond)))} groups/s`
    report.say(`  ${name}: ${grouped}, ${of(each => each.cores).toFixed(2)} cores in Node`)
  }
}

function load(ms: number, tenants: number, storeOf: (at: number) => Store): Promise<LoadSample> {
  const cursors = Array.from({ length: callers }, () => Array.from({ length: tenants }, () => new StreamCursor()))
  let made = 0
  return closedLoop({ callers, ms, warmUpMs: ms }, caller => {
    const at = made % tenants
    const { stream, version } = cursors[caller]![at]!.next(1)
    return storeOf(at).events.append(stream, [orderEvent(made++)], { expected: version })
  })
}

interface RestSample extends Sample {
  readonly connections: number
}

/** All tenants have a projection and a handler, and are asleep. */
async function rest({ quick, report }: BenchContext, server: BenchServer, tenants: string[]): Promise<void> {
  const numbers = quick ? [1, many] : [1, 10, many]
  const contestants = numbers.map(number => ({
    name: `${number}`,
    async run(): Promise<RestSample> {
      const url = `${server.url}?application_name=resting`
      const register = (own: Store): void => {
        void own.projections.register(ordersProjection('orders'))
        own.workflows.register(defineHandler('greet', { on: 'OrderPlaced', run: () => {} }))
      }
      await using store = await openTenanted(server, { url, register })
      await using runner = await store.start({ tenants: tenants.slice(0, number) })
      while (runner.active().length > 0) await sleep(100)
      const value = await statementsPerSecond(server, quick ? 20_000 : 33_000)
      if (runner.active().length > 0) throw new Error('a tenant with nothing to do was woken')
      const { rows } = await server.admin.query(
        "select count(*)::integer as connections from pg_stat_activity where application_name = 'resting'",
      )
      return { value, connections: rows[0].connections }
    },
  }))
  const samples = await interleave(contestants, { rounds: quick ? 1 : 3 })
  const [fewest, ...others] = numbers.map(number => ({ number, list: samples.get(`${number}`)! }))
  const against = { peerName: 'ours', peerNote: '1 tenant' } as const
  for (const { number, list } of others) {
    const connections = (of: readonly RestSample[]): Sample[] => of.map(sample => ({ value: sample.connections }))
    report.result({
      case: `${number} at rest`,
      ...against,
      unit: 'statements/s',
      ...compare(list, fewest!.list, 'less'),
    })
    const open = compare(connections(list), connections(fewest!.list), 'less')
    report.result({ case: `${number} at rest`, ...against, unit: 'connections', ...open })
  }
  report.table('tenants, at rest')
}

async function heap({ report }: BenchContext, server: BenchServer, tenants: string[]): Promise<void> {
  const input: TenantHeapInput = { url: server.url, tenants }
  const { heapPerTenant } = await runProgram<TenantHeapAnswer>('tenant-heap', input)
  report.say(`  heap: ${shown(Math.round(heapPerTenant / 1024))} KB for each tenant that a process uses`)
}

/** A whole store into a folder and back. */
async function inAndOut({ quick, report }: BenchContext, server: BenchServer): Promise<void> {
  const events = quick ? 50_000 : 300_000
  const rounds = quick ? 3 : 5
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-bench-'))
  const client = new pg.Client(server.url)
  await client.connect()
  const timed = async (work: () => Promise<unknown>): Promise<Sample> => {
    const started = performance.now()
    await work()
    return { value: events / ((performance.now() - started) / 1000) }
  }
  const against = (name: string, samples: Map<string, Sample[]>): void =>
    report.result({
      ...{ case: name, peerName: 'copy', unit: 'events/s' },
      ...compare(samples.get('ours')!, samples.get('copy')!),
    })
  await startAfresh(server.admin, storeTables)
  await using store = await server.openStore()
  await store.events.import(orders(events))
  const [archive, file] = [join(folder, 'archive'), join(folder, 'events')]
  const exporting = [
    { name: 'ours', run: () => timed(() => store.export({ output: archive })) },
    { name: 'copy', run: () => timed(() => copyToFile(client, 'rillflow', file)) },
  ]
  const empty = (path: string) => rm(path, { recursive: true, force: true })
  against('export', await interleave(exporting, { rounds, before: () => empty(archive) }))
  await empty(archive)
  await store.export({ output: archive })
  const ready = [...orderRows(made => made >= events)]
  const importing = [
    {
      name: 'ours',
      async run() {
        await using other = await server.openStore({ schema: 'imported' })
        return await timed(() => other.import({ input: archive }))
      },
    },
    { name: 'copy', run: () => timed(() => copyIn(client, ready)) },
  ]
  const before = async (): Promise<void> => {
    await server.admin.query('drop schema if exists imported cascade')
    await startAfresh(server.admin, storeTables)
  }
  against('import', await interleave(importing, { rounds, before }))
  report.table(`tenants, in and out with ${shown(events)} events`)
  await client.end()
  await empty(folder)
}

async function move({ quick, report }: BenchContext, server: BenchServer): Promise<void> {
  const events = quick ? 20_000 : 100_000
  await using other = await startBenchServer(report)
  await using mover = await openMover(server, other, events)
  const samples = await interleave(
    [
      { name: 'ours', run: () => mover.move() },
      { name: 'copy', run: () => mover.copy() },
    ],
    { rounds: quick ? 1 : 3 },
  )
  const ours = samples.get('ours')! as MoveSample[]
  const result = compare(ours, samples.get('copy')!, 'less')
  report.result({
    case: 'pause of a move',
    peerName: 'copy',
    peerNote: 'no writes meanwhile',
    unit: 'ms',
    ...result,
  })
  report.table(`tenants, a move of ${shown(events)} events`)
  const of = (pick: (sample: MoveSample) => number): string => shown(Math.round(median(ours.map(pick))))
  const slowest = `the slowest of ${of(each => each.appends)} appends meanwhile took ${of(each => each.slowest)} ms`
  report.say(`  the whole move took ${of(each => each.ms)} ms; ${slowest}`)
}
