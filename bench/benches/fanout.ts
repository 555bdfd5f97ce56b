/** Workflows that fan out into 100 parts and join them, against as many separate jobs. */
import type { Bench } from '../harness/bench.ts'
import { newerNode } from '../harness/newer-node.ts'
import { runProgram } from '../harness/program.ts'
import { compare, interleave, type Sample } from '../harness/rounds.ts'
import { startAfresh, startBenchServer } from '../harness/server.ts'
import type { FanOutAnswer, FanOutInput } from '../programs/fan-out-workflows.ts'
import { jobTables, loadJobQueue, makeJobTables } from '../rigs/job-queues.ts'

const parts = 100
const callerNumbers = [1, 8]

export const bench: Bench = {
  about: `fan-outs of ${parts} parts, each a queued handler, joined by one more, per second, until the workflow has settled`,
  async run({ quick, report }) {
    const ms = quick ? 5000 : 10_000
    await using server = await startBenchServer(report)
    await makeJobTables(server.url)
    const fanOuts = callerNumbers.map(callers => ({
      name: `${callers}`,
      run: () => fanOut({ url: server.url, parts, callers, ms }),
    }))
    const separate = {
      name: 'separate',
      async run(): Promise<Sample> {
        const load = { callers: 64, ms }
        const { value } = await loadJobQueue({ contestant: 'ours', place: { url: server.url }, setup: {}, load })
        return { value: value / parts }
      },
    }
    const samples = await interleave([...fanOuts, separate], {
      rounds: quick ? 2 : 5,
      before: () => startAfresh(server.admin, jobTables),
    })
    for (const { name } of fanOuts)
      report.result({
        case: name === '1' ? '1 caller' : `${name} callers`,
        peerName: 'ours',
        peerNote: `${parts} jobs, 64 callers`,
        unit: 'fan-outs/s',
        ...compare(samples.get(name)!, samples.get('separate')!),
      })
    report.table(`fanout, ${parts} parts`)
  },
}

function fanOut(input: FanOutInput): Promise<FanOutAnswer> {
  return runProgram<FanOutAnswer>('fan-out-workflows', input, { node: newerNode() })
}
