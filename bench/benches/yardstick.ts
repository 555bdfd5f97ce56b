/** The chaos and pressure cells of the neutral harness for job queues, run on our adapter for it. */
import type { Bench } from '../harness/bench.ts'
import { shown } from '../harness/report.ts'
import { startBenchServer } from '../harness/server.ts'
import { type Cell, type CellResult, cells, runCell } from '../rigs/harness-cells.ts'

const full = { warmUpMs: 5_000, phaseMs: 20_000 }
const short = { warmUpMs: 1_000, phaseMs: 4_000 }

export const bench: Bench = {
  about:
    'the five chaos and four pressure cells of the neutral job queue harness, shortened: recovery, lost and doubled jobs',
  async run({ quick, report }) {
    const passed = { chaos: 0, pressure: 0 }
    for (const cell of cells) {
      await using server = await startBenchServer(report)
      const result = await runCell(server, cell, quick ? short : full)
      const fault = faultOf(result)
      if (fault === undefined) passed[cell.kind]++
      report.say(`  ${lineOf(cell, result)}${fault === undefined ? '' : `  FAILED: ${fault}`}`)
      const zero = { value: 0 }
      const none = (value: number) => ({
        ours: { value },
        peer: zero,
        ratio: 1 / (value + 1),
        min: 1 / (value + 1),
        max: 1,
      })
      report.result({
        case: cell.name,
        peerName: 'none',
        unit: 'lost or doubled jobs',
        ...none(result.lost + result.doubled),
      })
    }
    const of = (kind: Cell['kind']): number => cells.filter(cell => cell.kind === kind).length
    report.say(`\n  chaos ${passed.chaos}/${of('chaos')}, pressure ${passed.pressure}/${of('pressure')}`)
  },
}

function faultOf({ lost, doubled, lingering, recoveredMs }: CellResult): string | undefined {
  if (lost > 0) return `${lost} jobs are lost`
  if (doubled > 0) return `${doubled} jobs were completed twice`
  if (lingering > 0) return `${lingering} processes did not end within 5 s of a SIGTERM`
  return recoveredMs === undefined ? 'its rate did not come back' : undefined
}

function lineOf({ name, kind }: Cell, result: CellResult): string {
  const { before, during, after, recoveredMs, jobs, lost, doubled, deadTuples } = result
  const rates = [before, during, after].map(rate => shown(Math.round(rate))).join(' → ')
  const back = recoveredMs === undefined ? 'never' : `${(recoveredMs / 1_000).toFixed(1)} s`
  return `${kind.padEnd(8)}  ${name.padEnd(20)}  ${rates} jobs/s, back after ${back}; of ${shown(jobs)}: ${lost} lost, ${doubled} doubled; ${shown(deadTuples)} dead tuples`
}
