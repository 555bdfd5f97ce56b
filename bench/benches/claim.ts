/** The time of one claim by the number of pending executions: in one workflow, and in a workflow each. */

import { defineHandler } from '../../src/workflows/handler.ts'
import type { Bench } from '../harness/bench.ts'
import { shown } from '../harness/report.ts'
import { compare, interleave, percentile, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startBenchServer } from '../harness/server.ts'
import { openClaimer } from '../rigs/claimer.ts'
import { type OrderEvent, orders } from '../workloads/orders.ts'

const pendings = [0, 1_000, 10_000, 100_000]
const spreads = ['one', 'many'] as const
type Spread = (typeof spreads)[number]
/** How many executions are taken at once. */
const limits = [1, 50]

export const bench: Bench = {
  about:
    'milliseconds of one claim, by how many more executions are ready; the ratio is to a claim with none behind it',
  async run({ quick, report }) {
    await using server = await startBenchServer(report)
    const backlogs: Backlog[] = []
    for (const spread of spreads) for (const pending of pendings) backlogs.push(await fill(server, spread, pending))
    await server.admin.query('vacuum analyze')
    await server.admin.query('checkpoint')
    for (const limit of limits) {
      const contestants = backlogs.map(backlog => ({
        name: backlog.schema,
        run: () => claims(server.url, backlog, limit, quick ? 100 : 300),
      }))
      const samples = await interleave(contestants, { rounds: quick ? 3 : 7 })
      for (const { schema, spread, pending } of backlogs) {
        if (pending === 0) continue
        const none = backlogs.find(each => each.spread === spread && each.pending === 0)!
        const result = compare(samples.get(schema)!, samples.get(none.schema)!, 'less')
        const where = spread === 'one' ? 'in one workflow' : 'in as many workflows'
        report.result({ case: `${shown(pending)} ${where}`, peerName: 'ours', peerNote: 'none', unit: 'ms', ...result })
      }
      report.table(`claim, ${limit} at once`)
    }
  },
}

interface Backlog {
  readonly schema: string
  readonly spread: Spread
  readonly pending: number
  readonly route: number
}

/** Makes a schema with the pending executions and those that are claimed. Each backlog has its own, so that they can alternate. */
async function fill(server: BenchServer, spread: Spread, pending: number): Promise<Backlog> {
  const schema = `claim_${spread}_${pending}`
  await using store = await server.openStore({ schema })
  store.workflows.register(defineHandler('job', { on: 'OrderPlaced', run: () => {} }))
  await store.workflows.sync()
  await store.events.import(jobs(pending + Math.max(...limits), spread))
  const { rows } = await server.admin.query(`select id from ${schema}.workflow_routes`)
  const route = rows[0].id as number
  await server.admin.query(
    `insert into ${schema}.workflow_executions (id, position, rank, route, state, correlation_id)
    select event_id, position, (extract(epoch from created_at) * 1000)::bigint, $1, 'ready', correlation_id
    from ${schema}.events
    order by position`,
    [route],
  )
  return { schema, spread, pending, route }
}

function* jobs(count: number, spread: Spread): Generator<OrderEvent & { stream: string }, void, undefined> {
  for (const event of orders(count)) yield spread === 'one' ? Object.assign(event, { correlationId: 'one' }) : event
}

/** On a new connection. Claimed executions go back to the end of the queue. */
async function claims(url: string, { schema, route }: Backlog, limit: number, times: number): Promise<Sample> {
  await using claimer = await openClaimer(url, schema)
  const warmUp = 20
  const took: number[] = []
  for (let n = 0; n < times + warmUp; n++) {
    const started = performance.now()
    const claimed = await claimer.claim(route, limit)
    if (n >= warmUp) took.push(performance.now() - started)
    if (claimed !== limit) throw new Error(`${claimed} executions were claimed, not ${limit}`)
    await claimer.release()
  }
  return { value: percentile(took, 0.5), p50: percentile(took, 0.5), p99: percentile(took, 0.99) }
}
