/** Loading many events: `events.import` against COPY of the same rows into the same table on one connection. */
import pg from 'pg'
import type { Bench } from '../harness/bench.ts'
import { compare, interleave } from '../harness/rounds.ts'
import { startAfresh, startBenchServer } from '../harness/server.ts'
import { copyIn, orderRows } from '../peers/copy.ts'
import { storeTables } from '../peers/rillflow-append.ts'
import { orders } from '../workloads/orders.ts'

export const bench: Bench = {
  about: 'events per second loaded, from the first one asked for to the last commit',
  async run({ quick, report }) {
    const events = quick ? 50_000 : 300_000
    await using server = await startBenchServer(report)
    await using store = await server.openStore()
    await using client = await connected(server.url)
    const timed = async (load: () => Promise<unknown>): Promise<{ value: number }> => {
      const started = performance.now()
      await load()
      return { value: events / ((performance.now() - started) / 1000) }
    }
    const samples = await interleave(
      [
        { name: 'ours', run: () => timed(() => store.events.import(orders(events))) },
        {
          name: 'copy',
          run: () =>
            timed(() =>
              copyIn(
                client.connection,
                orderRows(rows => rows >= events),
              ),
            ),
        },
        {
          name: 'ready',
          run() {
            const rows = [...orderRows(made => made >= events)]
            return timed(() => copyIn(client.connection, rows))
          },
        },
      ],
      { rounds: quick ? 4 : 7, before: () => startAfresh(server.admin, storeTables) },
    )
    const [ours, unit] = [samples.get('ours')!, 'events/s']
    report.result({ case: 'rows made alike', peerName: 'copy', unit, ...compare(ours, samples.get('copy')!) })
    report.result({ case: 'rows ready as text', peerName: 'copy', unit, ...compare(ours, samples.get('ready')!) })
    report.table(`bulk, ${events} events`)
  },
}

async function connected(url: string): Promise<AsyncDisposable & { connection: pg.Client }> {
  const connection = new pg.Client(url)
  await connection.connect()
  return { connection, [Symbol.asyncDispose]: () => connection.end() }
}
