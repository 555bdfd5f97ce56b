/** The process of a runner, as its heartbeats tell it: where it is, what it runs, and how busy its thread is. */
import { hostname } from 'node:os'
import { performance } from 'node:perf_hooks'
import { packageVersion } from '../../core/package-version.ts'

export interface RunnerProcess {
  readonly host: string
  readonly pid: number
  /** Of the package. */
  readonly version: string
  readonly node: string
  /** The share of the time since the heartbeat before in which its thread was busy, from 0 to 1. Above 0.9 timers are late. */
  readonly busy: number
}

/** Each call gives the share since the call before. */
export function processReport(): () => RunnerProcess {
  const { pid, version: node } = process
  const known = { host: hostname(), pid, version: packageVersion(), node: node.slice(1) }
  let before = performance.eventLoopUtilization()
  return () => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, before)
    before = now
    return { ...known, busy: Math.round(utilization * 1000) / 1000 }
  }
}
