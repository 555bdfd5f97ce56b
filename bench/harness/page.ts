/**
 * The performance page: runs its benches one after the other, keeps their results, and writes the table and the plots that
 * are made of them. The results stay, so that the page can be made again without a run.
 *
 *     npm run bench -- page ──► bench/results.json ──► the table in docs/performance.md · docs/images/performance-*.svg
 *     npm run bench -- page --render ──┘
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { cpus, loadavg } from 'node:os'
import { groups, type Row, runs } from './page-rows.ts'
import { plot } from './plot.ts'

/** A comparison, as `--json` prints it. */
export interface Line {
  readonly bench: string
  readonly case: string
  readonly ours: number
  readonly peer: number
  readonly peerName: string
  readonly peerNote?: string | undefined
  readonly ratio: number
  readonly min: number
  readonly max: number
  readonly unit: string
}

interface Results {
  readonly measuredAt: string
  readonly machine: string
  /** The lowest load average before a run, and the highest. */
  readonly load: readonly [lowest: number, highest: number]
  readonly lines: readonly Line[]
}

const root = `${import.meta.dirname}/../..`
const resultsFile = `${root}/bench/results.json`
const page = `${root}/docs/performance.md`
const [begin, end] = ['<!-- results: made by npm run bench -- page -->', '<!-- end of results -->'] as const

/**
 * Runs them, or those of `only`, and writes the page. A bench that was not run, or that failed, keeps its earlier results;
 * those that failed are named at the end.
 */
export function runPage(only?: string): void {
  const chosen = only?.split(',')
  const before = existsSync(resultsFile) ? (JSON.parse(readFileSync(resultsFile, 'utf8')) as Results) : undefined
  const loads: number[] = chosen === undefined ? [] : [...(before?.load ?? [])]
  const lines: Line[] = []
  const failed: string[] = []
  for (const [at, { name, args }] of runs.entries()) {
    // A bench with two runs keeps its earlier results once.
    const isFirst = runs.findIndex(run => run.name === name) === at
    const earlier = isFirst ? (before?.lines.filter(line => line.bench === name) ?? []) : []
    if (chosen !== undefined && !chosen.includes(name)) {
      lines.push(...earlier)
      continue
    }
    loads.push(loadavg()[0]!)
    const started = performance.now()
    const { status, stdout } = spawnSync(
      process.execPath,
      [...process.execArgv, `${root}/bench/run.ts`, name, '--json', ...args],
      {
        env: { ...process.env, RILLFLOW_BENCH_BUILT: 'yes' },
        stdio: ['ignore', 'pipe', 'inherit'],
        encoding: 'utf8',
      },
    )
    console.error(`bench: ${name} took ${Math.round((performance.now() - started) / 1000)} s`)
    if (status === 0)
      lines.push(
        ...stdout
          .split('\n')
          .filter(Boolean)
          .map(line => JSON.parse(line) as Line),
      )
    else {
      failed.push(name)
      lines.push(...earlier)
    }
  }
  const machine = `${cpus().length} cores of ${cpus()[0]?.model ?? 'an unknown processor'}, Node ${process.versions.node}`
  const load = [round(Math.min(...loads)), round(Math.max(...loads))] as const
  const results: Results = { measuredAt: new Date().toISOString().slice(0, 10), machine, load, lines }
  writeFileSync(resultsFile, `${JSON.stringify(results, undefined, 2)}\n`)
  renderPage()
  if (failed.length > 0) throw new Error(`These benches failed: ${failed.join(', ')}`)
}

/** Writes the table and the plots of the stored results. */
export function renderPage(): void {
  const results = JSON.parse(readFileSync(resultsFile, 'utf8')) as Results
  const { measuredAt, machine, load } = results
  let text = `Measured on ${measuredAt}: ${machine}; load average ${load[0]} to ${load[1]}.\n`
  for (const { name, title, rows } of groups) {
    const found = rows.flatMap(row => {
      const line = lineOf(results, row)
      return line === undefined ? [] : [{ row, line }]
    })
    if (found.length === 0) continue
    const image = `performance-${name}.svg`
    writeFileSync(
      `${root}/docs/images/${image}`,
      plot(
        title,
        found.map(({ row, line }) => ({ label: row.label, ...line, bar: row.bar })),
      ),
    )
    text += `\n### ${title}\n\n![${title}: ratios of ${found.length} comparisons, above 1 ours is better](images/${image})\n\n`
    text += '| comparison | ratio | of the rounds | bar |\n| --- | --- | --- | --- |\n'
    for (const { row, line } of found) {
      const bar = row.bar === undefined ? '' : `≥ ${row.bar}`
      text += `| ${row.label} | ${shownRatio(line.ratio)} | ${shownRatio(line.min)}–${shownRatio(line.max)} | ${bar} |\n`
    }
    const reasons = new Set(found.flatMap(({ row, line }) => (line.ratio < 1 ? (row.reason ?? []) : [])))
    if (reasons.size > 0) text += `\nWhere the peer is faster: ${[...reasons].join('; ')}.\n`
  }
  const whole = readFileSync(page, 'utf8')
  const [from, to] = [whole.indexOf(begin), whole.indexOf(end)]
  if (from === -1 || to === -1) throw new Error(`docs/performance.md has no "${begin}" and "${end}"`)
  writeFileSync(page, `${whole.slice(0, from + begin.length)}\n\n${text}\n${whole.slice(to)}`)
}

function lineOf({ lines }: Results, { bench, case: name, peer, note = '' }: Row): Line | undefined {
  return lines.find(
    line =>
      line.bench === bench && line.case === name && line.peerName === peer && (line.peerNote ?? '').includes(note),
  )
}

function shownRatio(ratio: number): string {
  return ratio >= 10 ? ratio.toFixed(0) : ratio >= 3 ? ratio.toFixed(1) : ratio.toFixed(2)
}

function round(value: number): number {
  return Math.round(value * 10) / 10
}
