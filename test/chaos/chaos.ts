/** Shared by all chaos tests: their duration, connections, and random numbers that a failure can name. */
import pg from 'pg'
import { inject } from 'vitest'
import type { Major } from '../support/postgres-binaries.ts'

/** `RILLFLOW_CHAOS=long` for a thorough run; otherwise as long as every run can afford. */
export const long: boolean = process.env.RILLFLOW_CHAOS === 'long'

/** The server's version in this project, for tests that start their own server. */
export const major: Major = inject('engine') === 'postgres-15' ? 15 : 18

/** A separate connection. The process survives the loss of the server. */
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

/** Prints the counts if `RILLFLOW_CHAOS_SHOW=1`. */
export function show(counts: unknown): void {
  if (process.env.RILLFLOW_CHAOS_SHOW) console.table(counts)
}
