/** The cost of telemetry without a listener, against the same build without telemetry, and with spans recorded. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { build, type Plugin } from 'esbuild'
import { filesLoaded } from '../../test/support/fresh-node.ts'
import type { Bench } from '../harness/bench.ts'
import { runProgram } from '../harness/program.ts'
import type { Report } from '../harness/report.ts'
import { compare, interleave, type Sample } from '../harness/rounds.ts'
import { type BenchServer, startAfresh, startBenchServer } from '../harness/server.ts'
import type { TracedStoreAnswer, TracedStoreInput } from '../programs/traced-store.ts'

const root = resolve(import.meta.dirname, '../..')
const tables = ['events', 'streams', 'workflows', 'workflow_executions', 'workflow_activity'].map(
  name => `rillflow.${name}`,
)

export const bench: Bench = {
  about: 'appends and handlers per second, and the time of the processor that each takes in Node',
  async run({ quick, report }) {
    const opened = `const { openStore } = await import('rillflow'); await (await openStore({ memory: true })).close()`
    const foreign = (await filesLoaded(opened)).filter(file => file.includes('/@opentelemetry/'))
    if (foreign.length > 0) throw new Error(`a store loads ${foreign.join(', ')}`)
    await using server = await startBenchServer(report)
    await (await server.openStore()).close()
    await using without = await buildWithout()
    const cases = [
      { name: 'append, 64 callers', unit: 'event', load: { callers: 64, ms: quick ? 1500 : 5000 } },
      { name: 'handlers', unit: 'job', load: { jobs: quick ? 2000 : 10_000 } },
    ]
    for (const each of cases) await runCase(each, { rounds: quick ? 3 : 9, without: without.entry, server, report })
  },
}

interface Case {
  readonly name: string
  readonly unit: string
  readonly load: TracedStoreInput['load']
}

interface Around {
  readonly rounds: number
  /** The entry of the build without telemetry. */
  readonly without: string
  readonly server: BenchServer
  readonly report: Report
}

interface TracedStoreSample extends Sample, TracedStoreAnswer {}

async function runCase({ name, unit, load }: Case, { rounds, without, server, report }: Around): Promise<void> {
  const run = async (entry: string, isTraced: boolean): Promise<TracedStoreSample> => {
    const input: TracedStoreInput = { url: server.url, entry, isTraced, load }
    const seen = await runProgram<TracedStoreAnswer>('traced-store', input)
    return { value: seen.perSecond, ...seen }
  }
  const built = join(root, 'dist/index.js')
  const contestants = [
    { name: 'unused', run: () => run(built, false) },
    { name: 'taken out', run: () => run(without, false) },
    { name: 'spans recorded', run: () => run(built, true) },
  ]
  const samples = await interleave(contestants, { rounds, before: () => startAfresh(server.admin, tables) })
  const unused = samples.get('unused')!
  const took = (list: readonly TracedStoreSample[]): Sample[] => list.map(each => ({ value: each.microseconds }))
  for (const peerNote of ['taken out', 'spans recorded']) {
    const peer = samples.get(peerNote)!
    const shared = { peerName: 'ours', peerNote } as const
    report.result({ case: name, unit: `${unit}s/s`, ...shared, ...compare(unused, peer) })
    const comparison = compare(took(unused), took(peer), 'less')
    report.result({ case: `${name}, processor`, unit: `µs/${unit}`, ...shared, ...comparison })
  }
  report.table(`telemetry: ${name}`)
  const spans = samples.get('spans recorded')!.map(each => each.spans)
  report.say(`  spans recorded in a run: ${Math.round(Math.min(...spans))} or more; by the others none`)
}

interface Without extends AsyncDisposable {
  readonly entry: string
}

/** The same code, built the same way, with telemetry functions that do nothing. The calls are still made. */
async function buildWithout(): Promise<Without> {
  const results = join(root, '.test-results')
  await mkdir(results, { recursive: true })
  const folder = await mkdtemp(join(results, 'without-'))
  await build({
    ...{ absWorkingDir: root, entryPoints: ['src/index.ts'], outdir: folder, plugins: [silence] },
    ...{ bundle: true, splitting: true, format: 'esm', platform: 'node', target: 'node20', packages: 'external' },
  })
  return {
    entry: join(folder, 'index.js'),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  }
}

const silence: Plugin = {
  name: 'silence',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /\?built$/ }, ({ path, resolveDir }) => ({
      path: join(resolveDir, path.replace('?built', '')),
      suffix: '?built',
    }))
    onLoad({ filter: /src\/telemetry\/telemetry\.ts$/ }, ({ suffix }) =>
      suffix === '?built' ? undefined : { contents: silenced, resolveDir: join(root, 'src/telemetry') },
    )
  },
}

const silenced = `
  import { openTelemetry as openBuilt } from './telemetry.ts?built'
  export { channels } from './telemetry.ts?built'
  const nothing = () => {}
  export function openTelemetry(logger) {
    const silent = { isTraced: false, publish: nothing, count: nothing, observe: nothing, shift: nothing }
    return { ...openBuilt(logger), ...silent }
  }`
