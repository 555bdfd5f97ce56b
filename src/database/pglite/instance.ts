/**
 * PGlite in this process, and its replacement after a crash.
 *
 *     message ─► instance ─┬─► reply
 *                          └─► crash ─► its files, as a crash of a server would leave them ─► another instance
 *
 * PGlite drops every exception that is not an error of PostgreSQL, such as an overflow of the stack in WebAssembly, and
 * continues with the next part of the message: the reply then looks like one without rows, and the call after it may never
 * return, because the state of the instance is damaged. So such an exception is caught on its way, ends the exchange, and
 * the instance is never used again. All that was committed is in its files, which the next one recovers from.
 */
import type { PGlite } from '@electric-sql/pglite'
import { statementTooComplex } from '../sqlstate.ts'
import type { Link } from './engine.ts'
import { refuseWithoutFiles, startError } from './engine-files.ts'
import * as wire from './wire.ts'

export interface PgliteData {
  /** Where the data lives; undefined is in memory. */
  readonly dataDir: string | undefined
  /** A tar file to begin with, if there is no data yet. Default: made by `initdb`. */
  readonly image?: Buffer | undefined
}

/** A statement crashed PGlite, which was started again: nothing of its transaction is left, and nothing is prepared. */
export class EngineCrash extends Error {
  /** As the server would report it: the code of an overflow is the one that PostgreSQL has for it. */
  readonly code: string
  constructor(crash: unknown) {
    const reason = crash instanceof Error ? crash.message : String(crash)
    const isOverflow = /call stack/i.test(reason)
    const message = isOverflow
      ? 'the stack of the embedded engine was full'
      : `the embedded engine crashed (${reason}) and was started again`
    super(message, { cause: crash })
    this.code = isOverflow ? statementTooComplex : internalError
  }
}

const internalError = 'XX000'

/** Starts PGlite in this process. */
export async function startPglite({ dataDir, image }: PgliteData): Promise<Link> {
  const start = async (from: Blob | undefined): Promise<PGlite> => {
    const pglite = await create(settings(dataDir), {
      ...(dataDir === undefined ? {} : { dataDir: `file://${dataDir}` }),
      ...(from === undefined ? {} : { loadDataDir: from }),
    })
    stopAtCrashes(pglite)
    return pglite
  }
  let work = 0
  let hasStopped = false
  let pglite = await start(image === undefined ? undefined : new Blob([image], { type: 'application/x-tar' }))

  const exchange = async (message: Buffer): Promise<Buffer> => {
    const chunks: Buffer[] = []
    // Neither file system needs the sync that PGlite does after each statement: both write at once.
    const onRawData = (bytes: Uint8Array): void => void chunks.push(Buffer.from(bytes))
    await pglite.execProtocolRawStream(message, { syncToFs: false, onRawData })
    const reply = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
    if (!wire.isComplete(reply)) throw new Error('the reply has no end')
    return reply
  }
  const replace = async (): Promise<void> => {
    const { fs, mod } = pglite as unknown as Inside
    const files = dataDir === undefined ? await fs.dumpTar('data', 'none') : undefined
    // Not closed as a whole: an orderly end would write out damaged memory.
    for (const stream of mod.FS.streams) if (stream && stream.fd > 2) closeQuietly(mod, stream)
    hasStopped = true
    pglite = await start(files)
    hasStopped = false
  }

  return {
    async exchange(message) {
      if (hasStopped) throw new Error('The embedded engine has stopped. Close the store and open it again.')
      work += 1 + message.length / 1000
      try {
        return await exchange(message)
      } catch (error) {
        await replace()
        throw new EngineCrash(error)
      }
    },
    prefix: '',
    get work() {
      return work
    },
    parserOf: oid => pglite.parsers[oid] as wire.Column['parse'],
    async stop() {
      if (hasStopped) return
      hasStopped = true
      await pglite.close()
    },
  }
}

/** An empty database as a tar file. */
export async function makeImage(): Promise<Buffer> {
  const pglite = await create(settings(undefined), {})
  try {
    // So that an engine which starts from it has next to nothing to recover.
    await pglite.exec('checkpoint')
    return Buffer.from(await (await pglite.dumpDataDir('none')).arrayBuffer())
  } finally {
    await pglite.close()
  }
}

async function create(given: readonly string[], options: { dataDir?: string; loadDataDir?: Blob }): Promise<PGlite> {
  const { PGlite } = await import('@electric-sql/pglite')
  await refuseWithoutFiles(PGlite)
  const startParams = [...PGlite.defaultStartParams, ...given.flatMap(setting => ['-c', setting])]
  return PGlite.create({ ...options, startParams }).catch((error: unknown) => {
    throw startError(error)
  })
}

/**
 * A new segment of the write-ahead log is not filled with zeros first: that stopped the thread for 60–100 ms, once per
 * 20,000 events. Freed segments are kept up to `max_wal_size`; `vacuum.ts` decides when they are freed.
 *
 * Buffers are zeroed at every start. With 64 MB instead of 128 an engine starts with 215 ms of a core instead of 300, and
 * reads and appends of 51,000 events in 5000 streams cost the same; with 32 MB it starts with 180, but reading them all,
 * which then means reading files, takes twice as long. In memory there are no files.
 *
 * PostgreSQL measures its stack in linear memory, where only a part of each frame is: the stack of WebAssembly, of about
 * 1 MB, is full long before PostgreSQL finds 2 MB used. With its least limit it refuses most statements that are too deep
 * by itself (measured: a search of 6000 words, JSON nested 3000 deep).
 */
function settings(dataDir: string | undefined): string[] {
  return [
    'wal_init_zero=off',
    'min_wal_size=32MB',
    'max_wal_size=128MB',
    'max_stack_depth=100kB',
    `shared_buffers=${dataDir === undefined ? 32 : 64}MB`,
  ]
}

/** Parts of PGlite that its types do not show. */
interface Inside {
  readonly mod: EngineModule
  readonly POSTGRES_MAIN_LONGJMP: number
  readonly fs: { dumpTar(name: string, compression: 'none'): Promise<Blob> }
}

interface EngineModule {
  _PostgresMainLoopOnce(): void
  _PostgresSendReadyForQueryIfNecessary(): void
  _pgl_pq_flush(): void
  stackRestore(at: number): void
  readonly FS: {
    readonly streams: readonly ({ readonly fd: number } | null | undefined)[]
    close(stream: { readonly fd: number }): void
  }
}

/** PGlite restores the stack after every exception, inside its own handler: an exception from there ends the exchange. */
function stopAtCrashes(pglite: PGlite): void {
  const { mod, POSTGRES_MAIN_LONGJMP } = pglite as unknown as Inside
  const { _PostgresMainLoopOnce, _PostgresSendReadyForQueryIfNecessary, _pgl_pq_flush, stackRestore } = mod
  let crash: { readonly error: unknown } | undefined
  mod._PostgresMainLoopOnce = () => {
    try {
      _PostgresMainLoopOnce()
    } catch (error) {
      if ((error as { status?: unknown } | null)?.status !== POSTGRES_MAIN_LONGJMP) crash = { error }
      throw error
    }
  }
  mod.stackRestore = at => {
    stackRestore(at)
    if (crash !== undefined) throw crash.error
  }
  const unlessCrashed = (call: () => void) => (): void => {
    if (crash === undefined) call()
  }
  mod._PostgresSendReadyForQueryIfNecessary = unlessCrashed(_PostgresSendReadyForQueryIfNecessary)
  mod._pgl_pq_flush = unlessCrashed(_pgl_pq_flush)
}

function closeQuietly({ FS }: EngineModule, stream: { readonly fd: number }): void {
  try {
    FS.close(stream)
  } catch {
    // Its descriptor is gone already.
  }
}
