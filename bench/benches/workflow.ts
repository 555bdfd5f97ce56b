/** Jobs that callers wait for, and a backlog of jobs: the store with its log and its history, pg-boss and graphile-worker. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Bench, BenchContext } from '../harness/bench.ts'
import { compare, interleave, middle, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startAfresh, startBenchServer } from '../harness/server.ts'
import type { JobQueueLoadAnswer, JobQueueLoadInput } from '../programs/job-queue-load.ts'
import type { JobQueueSetup } from '../rigs/job-queue.ts'
import { type JobQueueName, jobTables, loadJobQueue, makeJobTables } from '../rigs/job-queues.ts'

interface Entry {
  readonly contestant: JobQueueName
  readonly note: string
  readonly setup: JobQueueSetup
  /** Not part of a quick run. */
  readonly isSlow?: boolean
}

const settled: Entry = { contestant: 'ours', note: 'settled', setup: {} }
const handled: Entry = { contestant: 'ours', note: 'handled', setup: { until: 'handled' } }
const calling: readonly Entry[] = [
  settled,
  handled,
  { contestant: 'pg-boss', note: '4 workers', setup: {} },
  { contestant: 'pg-boss', note: '4 workers, pool of 32', setup: { poolSize: 32 }, isSlow: true },
  { contestant: 'pg-boss', note: '1 worker', setup: { workers: 1 } },
  { contestant: 'graphile-worker', note: 'default pool', setup: { batchSize: 500 } },
  { contestant: 'graphile-worker', note: 'pool of 32', setup: { batchSize: 500, poolSize: 32 }, isSlow: true },
]
/**
 * A step is recorded before the handler ends; peers without steps are not in these rows. DBOS runs whatever is started,
 * so there is a place for each caller here.
 */
const stepping: readonly Entry[] = [
  { contestant: 'ours', note: 'settled, 64 workers', setup: { workers: 64 } },
  { contestant: 'ours', note: 'with a step', setup: { workers: 64, steps: true } },
  { contestant: 'dbos', note: 'default pool', setup: {} },
  { contestant: 'dbos', note: 'pool of 32', setup: { poolSize: 32 }, isSlow: true },
  { contestant: 'dbos', note: 'with a step', setup: { steps: true } },
  { contestant: 'dbos', note: 'with a step, pool of 32', setup: { steps: true, poolSize: 32 }, isSlow: true },
]
const draining: readonly Entry[] = [
  settled,
  { contestant: 'pg-boss', note: 'batches of 50', setup: {} },
  { contestant: 'graphile-worker', note: 'local queue of 50', setup: {} },
  { contestant: 'graphile-worker', note: 'local queue of 500', setup: { batchSize: 500 } },
]
const peers = ['pg-boss', 'graphile-worker'] as const

export const bench: Bench = {
  about: 'jobs per second, 4 workers; p50 and p99 are from the call that puts in a job to the start of its handler',
  async run(context) {
    {
      await using server = await startBenchServer(context.report)
      await makeJobTables(server.url)
      for (const callers of [1, 8, 64]) await runCalls(context, server, callers)
      for (const callers of [1, 8, 64]) await runSteps(context, server, callers)
      await runBacklog(context, server)
    }
    await runEmbedded(context)
  },
}

async function runCalls({ quick, report }: BenchContext, server: BenchServer, callers: number): Promise<void> {
  const entries = calling.filter(({ isSlow }) => !(quick && isSlow))
  const samples = await runAll(entries, server, { callers, ms: quick ? 600 : 2500 }, quick ? 2 : 5)
  for (const peerName of peers) {
    const { entry, list: peer } = best(samples, peerName)
    const against = (ours: Entry, name: string): void => {
      const result = compare(samples.get(ours)!, peer)
      report.result({ case: name, peerName, peerNote: entry.note, unit: 'jobs/s', ...result })
    }
    against(settled, `${callers}`)
    against(handled, `${callers} handled`)
    for (const share of ['p50', 'p99'] as const) {
      const pick = (list: readonly Sample[]): Sample[] => list.map(sample => ({ value: sample[share]! }))
      const result = compare(pick(samples.get(settled)!), pick(peer), 'less')
      report.result({ case: `${callers} delay ${share}`, peerName, peerNote: entry.note, unit: 'ms', ...result })
    }
  }
  report.table(`workflow, ${callers} ${callers === 1 ? 'caller' : 'callers'}`)
}

async function runSteps({ quick, report }: BenchContext, server: BenchServer, callers: number): Promise<void> {
  const entries = stepping.filter(({ isSlow }) => !(quick && isSlow))
  const samples = await runAll(entries, server, { callers, ms: quick ? 600 : 2500 }, quick ? 2 : 5)
  for (const steps of [undefined, true]) {
    const ofKind = new Map([...samples].filter(([entry]) => entry.setup.steps === steps))
    const { entry, list } = best(ofKind, 'dbos')
    const ours = [...ofKind].find(([each]) => each.contestant === 'ours')![1]
    const name = steps === true ? `${callers} with a step` : `${callers}`
    report.result({
      ...{ case: name, peerName: 'dbos', peerNote: entry.note, unit: 'workflows/s' },
      ...compare(ours, list),
    })
  }
  report.table(`workflow, ${callers} ${callers === 1 ? 'caller' : 'callers'}, with DBOS Transact`)
}

async function runBacklog({ quick, report }: BenchContext, server: BenchServer): Promise<void> {
  const jobs = quick ? 5_000 : 20_000
  const samples = await runAll(draining, server, { jobs }, quick ? 2 : 5)
  for (const { contestant, note } of draining) {
    if (contestant === 'ours') continue
    const result = compare(samples.get(settled)!, samples.get(draining.find(each => each.note === note)!)!)
    report.result({ case: 'backlog', peerName: contestant, peerNote: note, unit: 'jobs/s', ...result })
  }
  report.table(`workflow, a backlog of ${jobs} jobs`)
}

/** In a folder, with one caller. Of the peers only pg-boss runs on PGlite. */
async function runEmbedded({ quick, report }: BenchContext): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'rf-workflow-'))
  try {
    const loads = { '1 caller': { callers: 1, ms: quick ? 1000 : 4000 }, backlog: { jobs: quick ? 1000 : 5000 } }
    for (const [name, load] of Object.entries(loads)) {
      const contestants = (['ours', 'pg-boss'] as const).map(contestant => ({
        name: contestant,
        run: () => loadJobQueue({ contestant, place: { folder: join(folder, contestant) }, setup: {}, load }),
      }))
      const samples = await interleave(contestants, { rounds: quick ? 1 : 5 })
      const result = compare(samples.get('ours')!, samples.get('pg-boss')!)
      report.result({ case: name, peerName: 'pg-boss', peerNote: 'PGlite', unit: 'jobs/s', ...result })
    }
    report.table('workflow, embedded')
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function runAll(
  entries: readonly Entry[],
  server: BenchServer,
  load: JobQueueLoadInput['load'],
  rounds: number,
): Promise<Map<Entry, JobQueueLoadAnswer[]>> {
  const nameOf = ({ contestant, note }: Entry): string => `${contestant} (${note})`
  const contestants = entries.map(entry => ({
    name: nameOf(entry),
    run: () => loadJobQueue({ contestant: entry.contestant, place: { url: server.url }, setup: entry.setup, load }),
  }))
  const samples = await interleave(contestants, { rounds, before: () => startAfresh(server.admin, jobTables) })
  return new Map(entries.map(entry => [entry, samples.get(nameOf(entry))!]))
}

/** The set-up in which a peer did the most jobs. */
function best(samples: ReadonlyMap<Entry, Sample[]>, name: JobQueueName): { entry: Entry; list: readonly Sample[] } {
  return [...samples]
    .filter(([entry]) => entry.contestant === name)
    .map(([entry, list]) => ({ entry, list }))
    .reduce((one, other) => (middle(other.list).value > middle(one.list).value ? other : one))
}
