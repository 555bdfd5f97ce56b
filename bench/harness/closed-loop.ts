/** Callers in a closed loop: each makes its next call when the last one has been answered. */
import { percentile, type Sample } from './rounds.ts'

export interface LoadOptions {
  readonly callers: number
  readonly ms: number
  /** Not measured; opens the connections and warms the caches. */
  readonly warmUpMs: number
  /** Units per call. Default 1. */
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
  const from = performance.now() + warmUpMs
  const to = from + ms
  let cpu: NodeJS.CpuUsage | undefined
  // Reads the clock instead of using timers: some contestants leave timers no time to fire.
  const loop = async (caller: number): Promise<void> => {
    for (let ended = 0; ended < to; ) {
      const started = performance.now()
      await call(caller)
      ended = performance.now()
      if (ended < from || ended >= to) continue
      cpu ??= process.cpuUsage()
      latencies.push(ended - started)
    }
  }
  await Promise.all(Array.from({ length: callers }, (_, caller) => loop(caller)))
  const { user, system } = process.cpuUsage(cpu)
  return {
    value: (latencies.length * unitsPerCall) / (ms / 1000),
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
    latencies,
    cores: (user + system) / 1e6 / (ms / 1000),
  }
}
