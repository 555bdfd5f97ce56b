/** What all chaos tests share: how long they go on, whom they connect to, and randomness that a failure can name. */
import pg from 'pg'
import { inject } from 'vitest'
import type { Major } from '../support/postgres-binaries.ts'

/** `RILLFLOW_CHAOS=long` for as long as it takes to trust them; otherwise as long as every run can bear. */
export const long: boolean = process.env.RILLFLOW_CHAOS === 'long'

/** The server's version in this project, for tests that need a server of their own. */
export const major: Major = inject('engine') === 'postgres-15' ? 15 : 18

/** A connection of its own. A server that goes away must not end the process. */
export async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'chaos' })
  client.on('error', () => {})
  await client.connect()
  return client
}

/** Connections that are closed together, whatever state they are in. */
export function connections(url: string): { open(): Promise<pg.Client> } & AsyncDisposable {
  const all: pg.Client[] = []
  return {
    async open() {
      const client = await connect(url)
      all.push(client)
      return client
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(all.map(client => client.end().catch(() => {})))
    },
  }
}

export type Random = () => number

/** Numbers from 0 to 1 that are the same for the same seed. */
export function seeded(seed: number): Random {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Up to so many milliseconds, and often none at all. */
export function pause(random: Random, maxMs: number): Promise<void> {
  if (random() < 0.3) return Promise.resolve()
  return new Promise(resolve => setTimeout(resolve, random() * maxMs))
}

export function pick<T>(random: Random, from: readonly T[]): T {
  return from[Math.floor(random() * from.length)]!
}

export function times<T>(count: number, make: (at: number) => T): T[] {
  return Array.from({ length: count }, (_, at) => make(at))
}

/** Prints what was counted, for whoever asks by `RILLFLOW_CHAOS_SHOW=1`. */
export function show(counts: unknown): void {
  if (process.env.RILLFLOW_CHAOS_SHOW) console.table(counts)
}
