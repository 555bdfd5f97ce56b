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

/** Prints what was counted, for whoever asks by `RILLFLOW_CHAOS_SHOW=1`. */
export function show(counts: unknown): void {
  if (process.env.RILLFLOW_CHAOS_SHOW) console.table(counts)
}
