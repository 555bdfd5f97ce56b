/**
 * A PostgreSQL 18 for one bench, with default durability, on loopback, removed at the end. With `RILLFLOW_BENCH_URL` it is
 * a server of the reader's instead: the bench has a database of its own there, which is dropped at the end.
 */
import { existsSync, readdirSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import pg from 'pg'
import { type PostgresServer, startServer } from '../../test/support/postgres-server.ts'
import type { Report } from './report.ts'
import { openStore, type Store, type StoreOptions } from './rillflow.ts'

const tmpfs = 0x01021994

export interface BenchServer extends AsyncDisposable {
  readonly url: string
  /** One that was given cannot be stopped. */
  readonly postgres: Pick<PostgresServer, 'url' | 'dataDir'> &
    Partial<Pick<PostgresServer, 'stop' | 'restart'>> &
    AsyncDisposable
  /** For set-up and checks; not measured. */
  readonly admin: pg.Pool
  /** A store with its full schema and default options. */
  openStore(options?: StoreOptions): Promise<Store>
}

export async function startBenchServer(report: Report): Promise<BenchServer> {
  const given = process.env.RILLFLOW_BENCH_URL
  return given === undefined
    ? openBenchServer(report, await startServer({ major: 18, durable: true }))
    : openGivenServer(report, given)
}

/**
 * A server that compiles expensive statements, which the one from npm cannot: that of `RILLFLOW_BENCH_URL`, or one of an
 * installation of the system (Debian's `postgresql-15` to `-18`). Undefined if there is none.
 */
export async function startServerWithJit(report: Report): Promise<BenchServer | undefined> {
  const given = process.env.RILLFLOW_BENCH_URL
  if (given !== undefined) return openGivenServer(report, given)
  const programs = installations()
    .map(name => `${debian}/${name}`)
    .find(folder => existsSync(`${folder}/lib/llvmjit.so`) && existsSync(`${folder}/bin/initdb`))
  if (programs === undefined) return undefined
  return openBenchServer(report, await startServer({ major: 15, durable: true, programs }))
}

const debian = '/usr/lib/postgresql'

/** The newest first. */
function installations(): string[] {
  const names = existsSync(debian) ? readdirSync(debian) : []
  return names.filter(name => Number(name) >= 15).sort((a, b) => Number(b) - Number(a))
}

async function openGivenServer(report: Report, given: string): Promise<BenchServer> {
  const name = `rillflow_bench_${process.pid}`
  const outside = new pg.Client(given)
  await outside.connect()
  await outside.query(`create database ${name}`)
  const url = new URL(given)
  url.pathname = name
  const inside = await openBenchServer(report, {
    url: url.href,
    get dataDir(): string {
      throw new Error('This bench reads the log of the server, so it cannot use RILLFLOW_BENCH_URL.')
    },
    async [Symbol.asyncDispose]() {
      await outside.query(`drop database ${name} with (force)`)
      await outside.end()
    },
  })
  return inside
}

async function openBenchServer(report: Report, postgres: BenchServer['postgres']): Promise<BenchServer> {
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
  if (process.env.RILLFLOW_BENCH_URL === undefined && (await statfs(postgres.dataDir)).type === tmpfs)
    report.say('Its data is in memory (tmpfs): fsync costs nothing.')
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
  await admin.query(`truncate ${tables.join(', ')} cascade`)
  await admin.query('checkpoint')
}
