/** One of two processes that append to the same few streams. */
import { setTimeout as sleep } from 'node:timers/promises'
import { closedLoop } from '../harness/closed-loop.ts'
import { answer } from '../harness/program.ts'
import { openStore } from '../harness/rillflow.ts'
import { openAppendCall } from '../peers/append-call.ts'
import { storeAppender } from '../peers/rillflow-append.ts'
import { openRoundTrips } from '../peers/round-trips.ts'
import type { Appender } from '../rigs/appender.ts'
import { orderEvent } from '../workloads/orders.ts'

export interface CompetingAppenderInput {
  readonly kind: 'ours' | 'call' | 'roundTrips'
  readonly url: string
  readonly streams: number
  readonly callers: number
  readonly ms: number
  /** When both processes begin: a value of `Date.now`. */
  readonly startAt: number
}

export interface CompetingAppenderAnswer {
  appended: number
  /** Appends refused because the stream had another version than the expected one. */
  conflicts: number
  uniqueViolations: number
  deadlocks: number
  /** Appends that failed although nothing was wrong with them. */
  innocent: number
  /** Why they failed. */
  reasons: string[]
}

answer<CompetingAppenderInput>(async input => {
  await using appender = await open(input)
  await sleep(Math.max(0, input.startAt - Date.now()))
  const seen: CompetingAppenderAnswer = {
    appended: 0,
    conflicts: 0,
    uniqueViolations: 0,
    deadlocks: 0,
    innocent: 0,
    reasons: [],
  }
  const versions = new Map<string, number>()
  let made = 0
  await closedLoop({ callers: input.callers, ms: input.ms, warmUpMs: 0 }, async () => {
    const stream = `hot-${Math.floor(Math.random() * input.streams)}`
    const version = Math.random() < 0.2 ? 'any' : (versions.get(stream) ?? 0)
    try {
      await appender.append(stream, version, [orderEvent(made++)])
      seen.appended++
      if (version !== 'any') versions.set(stream, Math.max(version + 1, versions.get(stream) ?? 0))
    } catch (error) {
      const actual = countFailure(seen, error, version)
      if (actual !== undefined) versions.set(stream, actual)
    }
  })
  return seen
})

async function open({ kind, url }: CompetingAppenderInput): Promise<Appender> {
  if (kind === 'ours') return storeAppender(await openStore({ url }))
  return kind === 'call' ? openAppendCall(url, 32) : openRoundTrips(url, 32)
}

/** Counts a failed append. Returns the actual version of the stream, if the error carries it. */
function countFailure(seen: CompetingAppenderAnswer, error: unknown, version: number | 'any'): number | undefined {
  const { actual, code, cause, message } = error as Error & {
    actual?: number
    code?: string
    cause?: { code?: string }
  }
  if (actual !== undefined && version !== 'any') {
    seen.conflicts++
    return actual
  }
  const state = cause?.code ?? code
  if (state === '23505') seen.uniqueViolations++
  if (state === '40P01') seen.deadlocks++
  seen.innocent++
  if (seen.reasons.length < 3) seen.reasons.push(`${code ?? ''} ${message}`)
  return undefined
}
