/** How soon an append is in a read model: in the same process, in another one, and with a poll written by hand. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench } from '../harness/bench.ts'
import type { Store } from '../harness/rillflow.ts'
import { compare, interleave, percentile, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startBenchServer } from '../harness/server.ts'
import { makeUpsertTables, upsertTables } from '../peers/upserts.ts'
import type { Applied, FollowerInput } from '../programs/projection-follower.ts'
import { machineMs, onApplied, startOrders } from '../rigs/orders-projection.ts'
import { orderEvent, StreamCursor } from '../workloads/orders.ts'

/** Low load: one append at a time. */
const everyMs = 50

export const bench: Bench = {
  about: `milliseconds from the call of an append to the commit of an async projection, ${1000 / everyMs} appends a second`,
  async run({ quick, report }) {
    await using server = await startBenchServer(report)
    await using writer = await server.openStore()
    await makeUpsertTables(server.admin)
    const appends = quick ? 100 : 400
    const contestants = [
      { name: 'same process', run: () => inSameProcess(server, appends) },
      { name: 'two processes', run: () => inTwoProcesses(server, writer, 'ours', appends) },
      { name: 'poll', run: () => inTwoProcesses(server, writer, 'by hand', appends) },
    ]
    const before = async (): Promise<void> => {
      await server.admin.query(`truncate rillflow.events, rillflow.streams, ${upsertTables.join(', ')}`)
      await server.admin.query('drop table if exists rillflow.orders')
      await server.admin.query('delete from rillflow.consumers')
    }
    const samples = await interleave(contestants, { rounds: quick ? 2 : 5, before })
    const poll = samples.get('poll')!
    for (const name of ['same process', 'two processes']) {
      const ours = samples.get(name)!
      for (const share of ['p50', 'p95', 'p50 after the answer'] as const) {
        const pick = (list: readonly LatencySample[]): Sample[] => list.map(sample => ({ value: sample[share] }))
        const result = compare(pick(ours), pick(poll), 'less')
        report.result({
          case: `${name}, ${share}`,
          peerName: 'hand-written',
          peerNote: '100 ms poll',
          unit: 'ms',
          ...result,
        })
      }
    }
    report.table(`latency, ${appends} appends`)
  },
}

interface LatencySample extends Sample {
  readonly p50: number
  readonly p95: number
  /** From when the append has resolved. */
  readonly 'p50 after the answer': number
}

async function inSameProcess(server: BenchServer, appends: number): Promise<LatencySample> {
  await using store = await server.openStore()
  const commits: Applied[] = []
  const stop = onApplied((position, at) => commits.push({ position, at }))
  await using _daemon = await startOrders(store)
  const sample = await measure(store, commits, appends)
  stop()
  return sample
}

async function inTwoProcesses(
  server: BenchServer,
  writer: Store,
  contestant: FollowerInput['contestant'],
  appends: number,
): Promise<LatencySample> {
  const child = fork(`${import.meta.dirname}/../programs/projection-follower.ts`, { serialization: 'advanced' })
  const commits: Applied[] = []
  const ended = once(child, 'close')
  child.send({ contestant, url: server.url } satisfies FollowerInput)
  await once(child, 'message')
  child.on('message', message => commits.push(message as Applied))
  const sample = await measure(writer, commits, appends)
  child.send('stop')
  await ended
  return sample
}

async function measure(store: Store, commits: Applied[], appends: number): Promise<LatencySample> {
  const cursor = new StreamCursor()
  const sent: { position: number; called: number; answered: number }[] = []
  const warmUp = 10
  for (let n = 0; n < appends + warmUp; n++) {
    const { stream, version } = cursor.next(1)
    const called = machineMs()
    const { position } = await store.events.append(stream, [orderEvent(n)], { expected: version })
    const answered = machineMs()
    if (n >= warmUp) sent.push({ position, called, answered })
    await sleep(everyMs)
  }
  const last = sent.at(-1)!.position
  while (commits.length === 0 || commits.at(-1)!.position < last) await sleep(10)
  const ms = (from: number, position: number): number => commits.find(each => each.position >= position)!.at - from
  const whole = sent.map(({ position, called }) => ms(called, position))
  const after = sent.map(({ position, answered }) => Math.max(0, ms(answered, position)))
  const p50 = percentile(whole, 0.5)
  return { value: p50, p50, p95: percentile(whole, 0.95), 'p50 after the answer': percentile(after, 0.5) }
}
