/**
 * The same calls on a small log and on a large one, in two schemas of one server: at a ratio of 1 a call does not become
 * slower as the log grows.
 */
import type { Bench } from '../harness/bench.ts'
import { defineHandler, type Store } from '../harness/rillflow.ts'
import { compare, interleave, percentile, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startBenchServer } from '../harness/server.ts'
import { openClaimer } from '../rigs/claimer.ts'
import { ordersProjection } from '../rigs/orders-projection.ts'
import { eventsPerStream, orderEvent } from '../workloads/orders.ts'

const small = 100_000
const claimable = 1_000

export const bench: Bench = {
  about: `milliseconds of a call (median) on a log of 5 million events (quick: 1 million), against one of ${small}`,
  async run({ quick, report }) {
    const large = quick ? 1_000_000 : 5_000_000
    await using server = await startBenchServer(report)
    await using few = await openGrown(server, 'few', small)
    await using many = await openGrown(server, 'many', large)
    report.say(`${small} and ${large} events, streams of ${eventsPerStream} with names in the order of time`)
    await server.admin.query('vacuum analyze')
    const names = Object.keys(few.calls) as (keyof typeof few.calls)[]
    for (const name of names) {
      const contestant = (which: string, log: Grown) => ({ name: which, run: () => timed(log.calls[name]!, quick) })
      await server.admin.query('checkpoint')
      const samples = await interleave([contestant('few', few), contestant('many', many)], { rounds: quick ? 7 : 11 })
      const against = { peerName: 'ours', peerNote: `${small} events` } as const
      const result = compare(samples.get('many')!, samples.get('few')!, 'less')
      report.result({ case: name, ...against, unit: 'ms', ...result })
    }
    report.table(`growth, ${large} events against ${small}`)
  },
}

interface Grown extends AsyncDisposable {
  readonly calls: Readonly<Record<string, () => Promise<unknown>>>
}

async function openGrown(server: BenchServer, schema: string, events: number): Promise<Grown> {
  const store = await server.openStore({ schema })
  const streams: string[] = []
  await store.events.import(
    (function* () {
      let stream = ''
      for (let at = 0; at < events; at++) {
        if (at % eventsPerStream === 0) {
          stream = store.newId('order')
          if (at % 1_000 === 0) streams.push(stream)
        }
        yield { stream, ...orderEvent(at) }
      }
    })(),
  )
  await store.projections.register(ordersProjection('orders'))
  const route = await makeExecutions(store, server, schema)
  const claimer = await openClaimer(server.url, schema)
  const some = (): string => streams[Math.floor(Math.random() * streams.length)]!
  let made = events
  const append = (stream: string): Promise<unknown> => store.events.append(stream, orderEvent(made++))
  return {
    calls: {
      'append to an old stream': () => append(some()),
      'append to a new stream': () => append(store.newId('order')),
      'append, 64 callers': () => Promise.all(Array.from({ length: 64 }, () => append(store.newId('order')))),
      'read a stream': () => store.events.read(some()).toArray(),
      'first 100 of the log': () => first(store, 100),
      'page of 500 at the end': () => store.events.readAll({ from: events - 600, to: events - 100 }).toArray(),
      'claim 50, and give them back': async () => {
        if ((await claimer.claim(route, 50)) !== 50) throw new Error('too few executions were claimed')
        await claimer.release()
      },
      'streams.list': () => store.streams.list({ limit: 100 }),
      'events.list': () => store.events.list({ limit: 100 }),
      'workflows.list': () => store.workflows.list({ limit: 100 }),
      'deadLetters.list': () => store.deadLetters.list({ limit: 100 }),
      'deadLetters.stats': () => store.deadLetters.stats(),
      'consumers.list': () => store.consumers.list(),
      'consumers.status': () => store.consumers.status('orders'),
    },
    async [Symbol.asyncDispose]() {
      await claimer[Symbol.asyncDispose]()
      await store.close()
    },
  }
}

async function first(store: Store, count: number): Promise<void> {
  let seen = 0
  for await (const _ of store.events.readAll()) if (++seen === count) return
}

/** Executions that are ready, of the last events; gives the route of their handler. */
async function makeExecutions(store: Store, server: BenchServer, schema: string): Promise<number> {
  store.workflows.register(defineHandler('job', { on: 'OrderPlaced', run: () => {} }))
  await store.workflows.sync()
  const { rows } = await server.admin.query(`select id from ${schema}.workflow_routes`)
  await server.admin.query(
    `insert into ${schema}.workflow_executions (id, position, rank, route, state, correlation_id)
    select event_id, position, (extract(epoch from created_at) * 1000)::bigint, $1, 'ready', correlation_id
    from ${schema}.events
    order by position desc
    limit ${claimable}`,
    [rows[0].id],
  )
  return rows[0].id as number
}

async function timed(call: () => Promise<unknown>, quick: boolean): Promise<Sample> {
  const took: number[] = []
  const until = performance.now() + (quick ? 80 : 200)
  while (took.length < 5 || performance.now() < until) {
    const started = performance.now()
    await call()
    took.push(performance.now() - started)
  }
  return { value: percentile(took, 0.5) }
}
