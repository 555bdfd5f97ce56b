/** The process of a runner, as its heartbeats tell it: where it is, what it runs, and how busy its thread is. */
import { hostname } from 'node:os'
import { processId, watchHostLoad } from '../../core/host.ts'
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
  const known = { host: hostname(), pid: processId(), version: packageVersion(), node: process.version.slice(1) }
  const load = watchHostLoad()
  return () => ({ ...known, busy: Math.round(load() * 1000) / 1000 })
}
