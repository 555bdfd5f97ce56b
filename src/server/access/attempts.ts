/** Limits how often an address may give a wrong token. The memory is bounded: the oldest addresses are forgotten. */
import { RequestRefused } from '../api/answer.ts'

export interface Attempts {
  refuseTooMany(address: string): void
  failed(address: string): void
}

const maxAddresses = 1_000

export function openAttempts(limit: number, withinMs: number): Attempts {
  const failures = new Map<string, number[]>()
  const recent = (address: string): number[] => {
    const since = performance.now() - withinMs
    return (failures.get(address) ?? []).filter(at => at > since)
  }
  return {
    refuseTooMany(address) {
      const times = recent(address)
      if (times.length < limit) return
      const seconds = Math.ceil((times[0]! + withinMs - performance.now()) / 1000)
      throw new RequestRefused(429, 'overloaded', `Too many wrong tokens. Try again in ${seconds} seconds.`, {
        'retry-after': String(seconds),
      })
    },
    failed(address) {
      failures.set(address, [...recent(address), performance.now()])
      for (const oldest of failures.keys()) {
        if (failures.size <= maxAddresses) break
        failures.delete(oldest)
      }
    },
  }
}
