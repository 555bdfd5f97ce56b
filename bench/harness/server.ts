/** A PostgreSQL 18 for one bench, with default durability, on loopback, removed at the end. */
import { statfs } from 'node:fs/promises'
import pg from 'pg'
import { type PostgresServer, startServer } from '../../test/support/postgres-server.ts'
import type { Report } from './report.ts'
import { openStore, type Store, type StoreOptions } from './rillflow.ts'

const tmpfs = 0x01021994

export interface BenchServer extends AsyncDisposable {
  readonly url: string
  readonly postgres: PostgresServer
  /** For set-up and checks; not measured. */
  readonly admin: pg.Pool
  /** A store with its full schema and default options. */
  openStore(options?: StoreOptions): Promise<Store>
}

export async function startBenchServer(report: Report): Promise<BenchServer> {
  const postgres = await startServer({ major: 18, durable: true })
  const admin = new pg.Pool({ connectionString: postgres.url, max: 2, allowExitOnIdle: true })
  admin.on('error', () => {})
  const { rows } = await admin.query(`
    select
      current_setting('server_version') as version,
      current_setting('fsync') as fsync,
      current_setting('synchronous_commit') as synchronous_commit,
      current_setting('wal_sync_method') as method`)
  const { version, fsync, synchronous_commit, method } = rows[0]
  report.say(`PostgreSQL ${version}, fsync ${fsync} (${method}), synchronous_commit ${synchronous_commit}`)
  if ((await statfs(postgres.dataDir)).type === tmpfs) report.say('Its data is in memory (tmpfs): fsync costs nothing.')
  return {
    url: postgres.url,
    postgres,
    admin,
    openStore: options => openStore({ url: postgres.url, migrate: true, ...options }),
    async [Symbol.asyncDispose]() {
      await admin.end()
      await postgres[Symbol.asyncDispose]()
    },
  }
}

/** Empties tables and makes a checkpoint, so that a run does not pay for the writes of the one before. */
export async function startAfresh(admin: pg.Pool, tables: readonly string[]): Promise<void> {
  await admin.query(`truncate ${tables.join(', ')}`)
  await admin.query('checkpoint')
}
