/**
 * The instance of PGlite behind the engine, and its replacement after a crash.
 *
 *     message ─► instance ─┬─► reply
 *                          └─► crash ─► its files, as a crash of a server would leave them ─► another instance
 *
 * PGlite drops every exception that is not an error of PostgreSQL, such as an overflow of the stack in WebAssembly, and
 * goes on with the next part of the message: the reply then looks like one without rows, and the call after it may never
 * return, because the state of the instance is damaged. So such an exception is caught on its way, ends the exchange, and
 * the instance is never used again. All that was committed is in its files, which the next one recovers from.
 */
import type { PGlite } from '@electric-sql/pglite'

export interface Instance {
  /** Rejects if the instance has crashed: then it must be replaced. */
  exchange(message: Buffer): Promise<Buffer>
  parserOf(oid: number): ((text: string) => unknown) | undefined
  /** Starts another one with the same data. */
  replace(): Promise<void>
  stop(): Promise<void>
}

export interface InstanceOptions {
  /** Where the data lives; undefined is in memory. */
  readonly dataDir: string | undefined
  /** A tar file to begin with, if there is no data yet. Default: made by `initdb`. */
  readonly image?: Buffer | undefined
  readonly settings: readonly string[]
}

export async function startInstance({ dataDir, image, settings }: InstanceOptions): Promise<Instance> {
  const { PGlite } = await import('@electric-sql/pglite')
  const start = (from: Blob | undefined): Promise<PGlite> =>
    PGlite.create({
      ...(dataDir === undefined ? {} : { dataDir: `file://${dataDir}` }),
      ...(from === undefined ? {} : { loadDataDir: from }),
      startParams: [...PGlite.defaultStartParams, ...settings.flatMap(setting => ['-c', setting])],
    })
  let pglite = await start(image === undefined ? undefined : new Blob([image], { type: 'application/x-tar' }))
  stopAtCrashes(pglite)
  return {
    async exchange(message) {
      const chunks: Buffer[] = []
      // Neither file system needs the sync that PGlite does after each statement: both write at once.
      const onRawData = (bytes: Uint8Array): void => void chunks.push(Buffer.from(bytes))
      await pglite.execProtocolRawStream(message, { syncToFs: false, onRawData })
      return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
    },
    parserOf: oid => pglite.parsers[oid] as ((text: string) => unknown) | undefined,
    async replace() {
      const { fs, mod } = pglite as unknown as Inside
      const files = dataDir === undefined ? await fs.dumpTar('data', 'none') : undefined
      // Not closed as a whole: an orderly end would write out damaged memory.
      for (const stream of mod.FS.streams) if (stream && stream.fd > 2) closeQuietly(mod, stream)
      pglite = await start(files)
      stopAtCrashes(pglite)
    },
    stop: () => pglite.close(),
  }
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
