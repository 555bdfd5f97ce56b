/**
 * Group commit on a server that compiles expensive statements, against the same server where sessions do not. The server
 * from npm has no compiler, nearly every other one has: functions that forbid plan shapes look expensive to it.
 */
import type { Bench } from '../harness/bench.ts'
import { closedLoop } from '../harness/closed-loop.ts'
import { openStore, type Store } from '../harness/rillflow.ts'
import { compare, interleave } from '../harness/rounds.ts'
import { startAfresh, startServerWithJit } from '../harness/server.ts'
import { storeTables } from '../peers/rillflow-append.ts'
import { orderEvent, StreamCursor } from '../workloads/orders.ts'

const callers = 64

export const bench: Bench = {
  about: `appends of ${callers} callers, and saves, on a server with JIT, against sessions without`,
  async run({ quick, report }) {
    await using server = await startServerWithJit(report)
    if (server === undefined) {
      report.say('No server with JIT was found. Install one (postgresql-15), or set RILLFLOW_BENCH_URL.')
      return
    }
    const { rows } = await server.admin.query('select pg_jit_available() as available, version() as version')
    report.say(`${rows[0].version}, JIT ${rows[0].available ? 'available' : 'NOT AVAILABLE: this says nothing'}`)
    const withOption = (jit: 'on' | 'off'): string => {
      const url = new URL(server.url)
      url.searchParams.set('options', `-c jit=${jit}`)
      return url.href
    }
    await (await server.openStore()).close()
    await using compiling = await openStore({ url: withOption('on'), migrate: true })
    await using plain = await openStore({ url: withOption('off'), migrate: true })
    const saved = { on: compiling.documents('saved'), off: plain.documents('saved') }
    await saved.on.ready()
    await saved.off.ready()
    const append = (store: Store) => (stream: string, version: number, n: number) =>
      store.events.append(stream, [orderEvent(n)], { expected: version })
    const save = (store: Store, which: 'on' | 'off') => async (stream: string, version: number, n: number) => {
      await using session = store.session()
      session.documents(saved[which]).put(`${stream}-${version}`, { n })
      session.events.append(stream, orderEvent(n), { expected: version })
      await session.save()
    }
    const kinds = [
      { name: `${callers}`, on: append(compiling), off: append(plain) },
      { name: `save, ${callers} callers`, on: save(compiling, 'on'), off: save(plain, 'off') },
    ]
    for (const { name, on, off } of kinds) {
      const contestant = (which: string, call: typeof on) => ({ name: which, run: () => load(call, quick) })
      const samples = await interleave([contestant('on', on), contestant('off', off)], {
        rounds: quick ? 5 : 9,
        before: () => startAfresh(server.admin, [...storeTables, 'rillflow.saved']),
      })
      const against = { peerName: 'ours', peerNote: 'jit = off' } as const
      report.result({ case: name, ...against, unit: '1/s', ...compare(samples.get('on')!, samples.get('off')!) })
    }
    report.table('group commit with JIT')
  },
}

function load(call: (stream: string, version: number, n: number) => Promise<unknown>, quick: boolean) {
  const cursors = Array.from({ length: callers }, () => new StreamCursor())
  let made = 0
  return closedLoop({ callers, ms: quick ? 800 : 2_000, warmUpMs: 250 }, caller => {
    const { stream, version } = cursors[caller]!.next(1)
    return call(stream, version, made++)
  })
}
