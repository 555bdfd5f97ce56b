/** Statements per second that an idle runner sends, as the server's own log counts them. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench } from '../harness/bench.ts'
import { openPool } from '../harness/pool.ts'
import { compare, interleave, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startBenchServer } from '../harness/server.ts'
import { statementsPerSecond } from '../harness/statement-rate.ts'
import { ordersProjection } from '../rigs/orders-projection.ts'
import { orders } from '../workloads/orders.ts'

const numbers = [1, 12, 100]
/** The poll interval of the store. */
const pollMs = 1000

export const bench: Bench = {
  about:
    'statements a second of an idle runner, with default options, against a loop per consumer that looks every second',
  async run({ quick, report }) {
    await using server = await startBenchServer(report)
    await using store = await server.openStore()
    await store.events.import(orders(1_000))
    // Leases are renewed every ten seconds: the measured time must include a renewal.
    const ms = quick ? 11_000 : 33_000
    for (const consumers of numbers) {
      const contestants = [
        { name: 'ours', run: () => counted(server, ms, wait => withDaemon(server, consumers, wait)) },
        {
          name: 'by hand',
          run: () => counted(server, quick ? 3_000 : 10_000, wait => withLoops(server, consumers, wait)),
        },
      ]
      const samples = await interleave(contestants, { rounds: quick ? 1 : 3 })
      const result = compare(samples.get('ours')!, samples.get('by hand')!, 'less')
      const name = consumers === 1 ? '1 consumer' : `${consumers} consumers`
      report.result({ case: name, peerName: 'hand-written', peerNote: 'a poll each', unit: 'statements/s', ...result })
    }
    report.table('idle')
  },
}

/** Runs a contestant until it is idle, and counts its statements from then on. */
async function counted(
  server: BenchServer,
  ms: number,
  run: (whileIdle: () => Promise<void>) => Promise<void>,
): Promise<Sample> {
  let value = 0
  await run(async () => {
    await sleep(1_500)
    value = await statementsPerSecond(server, ms)
  })
  return { value }
}

async function withDaemon(server: BenchServer, consumers: number, whileIdle: () => Promise<void>): Promise<void> {
  await using store = await server.openStore()
  for (let n = 0; n < consumers; n++) await store.projections.register(ordersProjection(`orders-${n}`))
  await store.schema.sync()
  await store.consumers.runUntilIdle()
  await using _ = await store.start()
  await whileIdle()
}

async function withLoops(server: BenchServer, consumers: number, whileIdle: () => Promise<void>): Promise<void> {
  const pool = openPool(server.url, 10)
  let isOver = false
  const loop = async (): Promise<void> => {
    while (!isOver) {
      await pool.query(
        'select position from rillflow.events where position > $1 order by position limit 500',
        [1_000_000],
      )
      await sleep(pollMs)
    }
  }
  const loops = Array.from({ length: consumers }, loop)
  await whileIdle()
  isOver = true
  await Promise.all(loops)
  await pool.end()
}
