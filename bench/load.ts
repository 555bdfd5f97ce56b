/** Callers in a closed loop: each makes its next call when the last one is answered. */
import { setTimeout as sleep } from 'node:timers/promises'
import { percentile, type Sample } from './rounds.ts'

export interface LoadOptions {
  readonly callers: number
  readonly ms: number
  /** Not measured; opens the connections and warms the caches. */
  readonly warmUpMs: number
  /** What a call counts for. Default 1. */
  readonly unitsPerCall?: number
}

export interface LoadSample extends Sample {
  /** Milliseconds each call took. */
  readonly latencies: readonly number[]
  /** How many of the machine's cores this process used. */
  readonly cores: number
}

export async function closedLoop(
  { callers, ms, warmUpMs, unitsPerCall = 1 }: LoadOptions,
  call: (caller: number) => Promise<unknown>,
): Promise<LoadSample> {
  const latencies: number[] = []
  let from = Number.POSITIVE_INFINITY
  let to = Number.POSITIVE_INFINITY
  const loop = async (caller: number): Promise<void> => {
    while (performance.now() < to) {
      const started = performance.now()
      await call(caller)
      const ended = performance.now()
      if (ended >= from && ended < to) latencies.push(ended - started)
    }
  }
  const running = Promise.all(Array.from({ length: callers }, (_, caller) => loop(caller)))
  // A call that fails ends the run here, not at its end.
  await Promise.race([sleep(warmUpMs), running])
  const cpu = process.cpuUsage()
  from = performance.now()
  await Promise.race([sleep(ms), running])
  to = performance.now()
  const { user, system } = process.cpuUsage(cpu)
  await running
  const seconds = (to - from) / 1000
  return {
    value: (latencies.length * unitsPerCall) / seconds,
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
    latencies,
    cores: (user + system) / 1e6 / seconds,
  }
}
