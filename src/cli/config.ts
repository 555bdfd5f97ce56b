/**
 * Where the store is and what belongs to it: flags, then the environment (`DATABASE_URL`, `RILLFLOW_*`), then the
 * configuration file, then the embedded store in ./.rillflow.
 *
 * A `.ts` file is loaded by Node itself where it can strip types; older ones need `jiti`, which is the user's to install.
 */

import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, relative, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Config } from '../config.ts'
import type { LoadedConfig, Place } from './command.ts'
import { ConfigFailed, WrongUsage } from './report-error.ts'

export const configNames = ['rillflow.config.ts', 'rillflow.config.js', 'rillflow.config.mjs'] as const

/** Flags and environment; the file's part is added by `mergePlace`. */
export function placeOf(flags: Omit<Place, 'usualTenant'>, env: NodeJS.ProcessEnv): Place {
  const given = (name: string): string | undefined => env[name] || undefined
  const { memory = false } = flags
  const places = [flags.url && '--url', flags.folder && '--folder', memory && '--memory'].filter(Boolean)
  if (places.length > 1)
    throw new WrongUsage({ reason: `${places.join(' and ')} exclude each other: a store is in one place` })
  const isEmbedded = flags.folder !== undefined || memory
  const url = isEmbedded ? undefined : (flags.url ?? given('RILLFLOW_URL') ?? given('DATABASE_URL'))
  return {
    url,
    folder: url === undefined && !memory ? (flags.folder ?? given('RILLFLOW_FOLDER')) : undefined,
    memory,
    schema: flags.schema,
    tenant: flags.tenant,
    usualTenant: given('RILLFLOW_TENANT'),
    tenancy: flags.tenancy,
    config: flags.config,
  }
}

/** Undefined if there is none; one that the line names need not be there. */
export function findConfig({ config }: Pick<Place, 'config'>, folder: string): string | undefined {
  if (config !== undefined) return resolve(folder, config)
  return configNames.map(name => join(folder, name)).find(path => existsSync(path))
}

export async function loadConfig(place: Place, folder: string): Promise<LoadedConfig | undefined> {
  const path = findConfig(place, folder)
  if (path === undefined) return undefined
  const shown = relative(folder, path) || path
  const config = await importDefault(path, shown)
  if (typeof config !== 'object' || config === null)
    throw new ConfigFailed({ path: shown, reason: 'it must have a default export: export default defineConfig({ … })' })
  return { config: config as Config, path: shown }
}

/** The default export of a module of the user's. */
export async function importDefault(path: string, shown: string = path): Promise<unknown> {
  const file = resolve(path)
  if (!existsSync(file)) throw new ConfigFailed({ path: shown, reason: 'the file is not there' })
  try {
    return (await importModule(file, shown)).default
  } catch (error) {
    if (error instanceof ConfigFailed) throw error
    const reason = error instanceof Error ? error.message : String(error)
    const [, missing] = /^Cannot find (?:package|module) '([\w@][^']*)'/.exec(reason) ?? []
    throw new ConfigFailed({ path: shown, reason, hint: missing && `npm install ${missing}` }, error)
  }
}

/** The options of the store; what the line says wins over what the file says, and one place excludes the other. */
export function mergePlace(
  config: Config,
  place: Place,
): Pick<Config, 'url' | 'pool' | 'folder' | 'schema' | 'memory'> {
  const schema = place.schema ?? config.schema
  if (place.memory) return { memory: true, schema }
  if (place.url !== undefined) return { url: place.url, schema }
  if (place.folder !== undefined) return { folder: place.folder, schema }
  const { url, pool, folder, memory } = config
  return { url, pool, folder, memory, schema }
}

async function importModule(path: string, shown: string): Promise<{ default?: unknown }> {
  const url = pathToFileURL(path).href
  if (!needsJiti(path)) return (await import(url)) as { default?: unknown }
  const found = findJiti(path)
  if (found === undefined) {
    const reason = `Node ${process.versions.node} reads TypeScript only with the help of jiti, which is not installed`
    throw new ConfigFailed({ path: shown, reason, hint: installJiti })
  }
  const { createJiti } = (await import(pathToFileURL(found).href)) as { createJiti: CreateJiti }
  // Whatever Node can load is loaded by Node: a second copy of this library would not know the first one's objects.
  return createJiti(url, { tryNative: true, interopDefault: true }).import(path)
}

export const installJiti = 'npm install --save-dev jiti'

/** Whether a file is in TypeScript and this Node does not read that by itself. */
export function needsJiti(path: string): boolean {
  return path.endsWith('.ts') && !(process.features as { typescript?: unknown }).typescript
}

export function findJiti(path: string): string | undefined {
  try {
    return createRequire(path).resolve('jiti')
  } catch {
    return undefined
  }
}

type CreateJiti = (id: string, options: object) => { import(path: string): Promise<{ default?: unknown }> }
