/**
 * The files of the embedded engine. It looks for them next to its own code, and a bundler takes only the code along: then it
 * would end the process with an error that nothing can catch. So they are looked for before it starts.
 */
import { access } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { PGlite } from '@electric-sql/pglite'
import { EngineFileMissing } from '../errors.ts'

/** Throws `EngineFileMissing`, with the name of the first file that is not where the engine looks for it. */
export async function refuseWithoutFiles(engine: typeof PGlite): Promise<void> {
  const module = moduleOf(engine)
  // A place that is not a file is that of a source map, or of a runtime with places of its own.
  if (module === undefined || !(await exists(module))) return
  for (const name of ['pglite.wasm', 'initdb.wasm', 'pglite.data']) {
    const file = join(dirname(module), name)
    if (!(await exists(file))) throw new EngineFileMissing({ file })
  }
}

/** The file with the engine's code: the caller of a property that its constructor reads. */
function moduleOf(engine: typeof PGlite): string | undefined {
  try {
    const options = {
      get dataDir(): string {
        throw new Error('the stack is wanted')
      },
    }
    new engine(options)
  } catch (error) {
    const frames = String((error as Error).stack).match(/(?:file:\/\/\/|\/|[A-Za-z]:\\)[^\s()]*(?=:\d+:\d+)/g)
    const place = frames?.[1]
    return place?.startsWith('file:') ? fileURLToPath(place) : place
  }
  return undefined
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}

/** An engine that was bundled in the format of CommonJS does not know its place and finds no file, wherever it is. */
export function startError(error: unknown): unknown {
  const { code } = (error ?? {}) as { code?: string }
  const isLost = code === 'ERR_INVALID_URL' || code === 'ERR_INVALID_ARG_VALUE'
  return isLost ? new EngineFileMissing({ file: 'pglite.wasm' }, error) : error
}
