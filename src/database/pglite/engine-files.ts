/**
 * The files of the embedded engine in a program that was bundled. A bundler takes only the code along, and the engine would
 * look for its files next to the bundle and end the process if they are not there.
 *
 *     not bundled ──► the engine finds its files itself
 *     bundled ──► next to the bundle, or in node_modules ──► given to the engine
 *                     └── in neither ──► EngineFileMissing, with the name of the file
 */
import { access, readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { PGliteOptions } from '@electric-sql/pglite'
import { EngineFileMissing } from '../errors.ts'

export type EngineFiles = Pick<PGliteOptions, 'pgliteWasmModule' | 'initdbWasmModule' | 'fsBundle'>

/** Every runtime has it, and the types of Node have not. */
const { WebAssembly } = globalThis as unknown as {
  WebAssembly: { compile(bytes: Buffer): Promise<NonNullable<PGliteOptions['pgliteWasmModule']>> }
}

/** Undefined if the engine finds its files itself. Read once per process: an engine takes them as they are. */
export async function engineFiles(): Promise<EngineFiles | undefined> {
  // A bundle in the format of CommonJS has no address of its own, and the engine cannot run inside it.
  const here = import.meta.url as string | undefined
  if (here === undefined) return undefined
  if (/\/engine-files\.[jt]s$/.test(here)) return undefined
  const [pglite, initdb, data] = await Promise.all(
    ['pglite.wasm', 'initdb.wasm', 'pglite.data'].map(name => readEngineFile(here, name)),
  )
  return {
    pgliteWasmModule: await WebAssembly.compile(pglite!),
    initdbWasmModule: await WebAssembly.compile(initdb!),
    fsBundle: new Blob([data!]),
  }
}

async function readEngineFile(here: string, name: string): Promise<Buffer<ArrayBuffer>> {
  const nearby = join(dirname(fileURLToPath(here)), name)
  if (await exists(nearby)) return readFile(nearby)
  const installed = join(installedFolder(here) ?? '', name)
  if (await exists(installed)) return readFile(installed)
  throw new EngineFileMissing({ file: nearby })
}

function installedFolder(here: string): string | undefined {
  try {
    return dirname(createRequire(here).resolve('@electric-sql/pglite'))
  } catch {
    return undefined
  }
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}

/** An error of an engine that was bundled in the format of CommonJS says nothing; this one does. */
export function startError(error: unknown): unknown {
  const { code } = (error ?? {}) as { code?: string }
  const isLost = import.meta.url === undefined && (code === 'ERR_INVALID_URL' || code === 'ERR_INVALID_ARG_VALUE')
  return isLost ? new EngineFileMissing({ file: 'pglite.wasm' }, error) : error
}
