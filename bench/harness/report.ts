/**
 * Results: a table for people, or one line of JSON per comparison. With `--json` everything else goes to stderr, so that
 * stdout carries results alone.
 */
import { loadavg } from 'node:os'
import type { Comparison } from './rounds.ts'

export type PeerName =
  | 'emmett'
  | 'pongo'
  | 'pg-boss'
  | 'graphile-worker'
  | 'dbos'
  | 'per-event statement'
  | 'per-append call'
  | 'round trips'
  | 'copy'
  | 'driver'
  | 'bare Node'
  | 'hand-written'
  | 'plain query'
  | 'ours'
  | 'none'

export interface Result extends Comparison {
  readonly case: string
  readonly peerName: PeerName
  readonly unit: string
  /** The set-up of the peer, shown in the table. */
  readonly peerNote?: string | undefined
}

export interface Report {
  /** One comparison. Printed at once as JSON, gathered for the table otherwise. */
  result(result: Result): void
  /** Prints the gathered comparisons as one table. */
  table(title: string): void
  /** A line for people. */
  say(line: string): void
  close(): void
}

const columns = ['case', 'ours', 'p50', 'p99', 'peer', '', 'p50', 'p99', 'ratio', 'min–max', 'unit']
const leftAligned = new Set([0, 4, 10])

export function openReport(bench: string, { json }: { json: boolean }): Report {
  let gathered: Result[] = []
  const print = (line: string): void => void (json ? process.stderr : process.stdout).write(`${line}\n`)
  const table = (title: string): void => {
    if (gathered.length === 0) return
    print(`\n${title}  (load average ${load()})`)
    for (const line of aligned([columns, ...gathered.map(rowOf)])) print(line)
    print('')
    gathered = []
  }
  return {
    result(result) {
      gathered.push(result)
      const { case: name, ours, peer, peerName, peerNote, ratio, min, max, unit } = result
      const line = { bench, case: name, ours: rounded(ours.value), peer: rounded(peer.value), peerName }
      const range = { ratio: rounded(ratio), min: rounded(min), max: rounded(max) }
      if (json) process.stdout.write(`${JSON.stringify({ ...line, peerNote, ...range, unit })}\n`)
    },
    table,
    say: print,
    close: () => table(bench),
  }
}

function rowOf(result: Result): string[] {
  const { ours, peer, ratio, min, max } = result
  const peerName = result.peerNote === undefined ? result.peerName : `${result.peerName} (${result.peerNote})`
  return [
    result.case,
    shown(ours.value),
    milliseconds(ours.p50),
    milliseconds(ours.p99),
    peerName,
    shown(peer.value),
    milliseconds(peer.p50),
    milliseconds(peer.p99),
    `${ratio.toFixed(2)}×`,
    min === max ? '' : `${min.toFixed(2)}–${max.toFixed(2)}`,
    result.unit,
  ]
}

function aligned(rows: readonly (readonly string[])[]): string[] {
  const used = columns.map((_, at) => at).filter(at => rows.some((row, line) => line > 0 && row[at] !== ''))
  const widths = columns.map((_, at) => Math.max(...rows.map(row => row[at]!.length)))
  return rows.map(row => {
    const cell = (at: number): string =>
      leftAligned.has(at) ? row[at]!.padEnd(widths[at]!) : row[at]!.padStart(widths[at]!)
    return `  ${used.map(cell).join('  ')}`.trimEnd()
  })
}

export function load(): string {
  return loadavg()
    .map(each => each.toFixed(1))
    .join(' ')
}

/** 12 345 · 12.3 · 0.123 */
export function shown(value: number): string {
  if (value >= 1000 || Number.isInteger(value))
    return Math.round(value)
      .toString()
      .replace(/\B(?=(\d{3})+$)/g, ' ')
  return value >= 10 ? value.toFixed(1) : value.toFixed(3)
}

function milliseconds(value: number | undefined): string {
  return value === undefined ? '' : `${value.toFixed(value < 10 ? 2 : 1)} ms`
}

function rounded(value: number): number {
  return Number(value.toPrecision(6))
}
