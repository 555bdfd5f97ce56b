/** Job queues while another session holds an old snapshot, so that dead rows cannot be vacuumed. */
import type { Bench } from '../harness/bench.ts'
import { newerNode } from '../harness/newer-node.ts'
import { runProgram } from '../harness/program.ts'
import { shown } from '../harness/report.ts'
import { compare, interleave, median, type Sample } from '../harness/rounds.ts'
import { startAfresh, startBenchServer } from '../harness/server.ts'
import type { SnapshotLoadAnswer, SnapshotLoadInput } from '../programs/job-queue-with-snapshot.ts'
import type { JobQueueSetup } from '../rigs/job-queue.ts'
import { type JobQueueName, jobTables, makeJobTables } from '../rigs/job-queues.ts'

const callers = 64
const setups: Readonly<Record<Exclude<JobQueueName, 'dbos'>, JobQueueSetup>> = {
  ours: {},
  'pg-boss': {},
  'graphile-worker': { batchSize: 500 },
}
const peers = ['pg-boss', 'graphile-worker'] as const

interface PinnedSample extends Sample, SnapshotLoadAnswer {}

export const bench: Bench = {
  about: `jobs per second of ${callers} callers while a transaction of another session holds an old snapshot`,
  async run({ quick, report }) {
    const [pinnedMs, freeMs] = quick ? [10_000, 3_000] : [60_000, 10_000]
    await using server = await startBenchServer(report)
    await server.admin.query('create extension pgstattuple')
    await makeJobTables(server.url)
    const contestants = Object.entries(setups).map(([name, setup]) => ({
      name,
      async run(): Promise<PinnedSample> {
        const input: SnapshotLoadInput = {
          contestant: name as JobQueueName,
          url: server.url,
          setup,
          callers,
          freeMs,
          pinnedMs,
        }
        const seen = await runProgram<SnapshotLoadAnswer>('job-queue-with-snapshot', input, { node: newerNode() })
        return { value: seen.pinned, ...seen }
      },
    }))
    const samples = await interleave(contestants, {
      rounds: quick ? 1 : 3,
      before: () => startAfresh(server.admin, jobTables),
    })
    const ours = samples.get('ours')!
    const pick = (list: readonly PinnedSample[], of: (sample: PinnedSample) => number): Sample[] =>
      list.map(sample => ({ value: of(sample) }))
    for (const peerName of peers) {
      const peer = samples.get(peerName)!
      const against = (of: (sample: PinnedSample) => number, better: 'more' | 'less') =>
        compare(pick(ours, of), pick(peer, of), better)
      report.result({ case: 'pinned', peerName, unit: 'jobs/s', ...against(each => each.pinned, 'more') })
      const kept = against(each => (100 * each.late) / each.free, 'more')
      report.result({ case: 'kept at the end', peerName, unit: '% of its pace before', ...kept })
      const dead = against(each => each.deadTuples / each.jobs, 'less')
      report.result({ case: 'dead tuples', peerName, unit: 'a job', ...dead })
    }
    report.table(`pinned, ${pinnedMs / 1000} s`)
    for (const [name, list] of samples) report.say(`  ${name}: ${paces(list)}`)
  },
}

function paces(list: readonly PinnedSample[]): string {
  const of = (pick: (sample: PinnedSample) => number): string => shown(Math.round(median(list.map(pick))))
  const pace = `${of(each => each.free)} jobs/s before, ${of(each => each.pinned)} pinned, ${of(each => each.late)} at the end`
  return `${pace}; ${of(each => each.deadTuples)} dead tuples of ${of(each => each.jobs)} jobs, ${of(each => each.bytes / 1e6)} MB`
}
