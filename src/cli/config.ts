/**
 * Finds and loads the configuration, and decides where the store is: flags, then the environment (`DATABASE_URL`,
 * `RILLFLOW_*`), then the configuration file, then the embedded store in ./.rillflow.
 *
 * What can fail: the file does not exist, throws, or has no usable default export; `ConfigFailed` says which. A `.ts` file is
 * loaded by Node itself if it can strip its types. An older Node, and syntax that cannot be stripped such as an enum, need
 * `jiti`, which the user installs.
 */
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, relative, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Config } from '../config.ts'
import type { LoadedConfig, Location } from './command.ts'
import { ConfigFailed, WrongUsage } from './report-error.ts'

export const configNames = ['rillflow.config.ts', 'rillflow.config.js', 'rillflow.config.mjs'] as const

/** The location, by flags and environment. `withLocation` adds that of the configuration. */
export function locationFrom(flags: Omit<Location, 'defaultTenant'>, env: NodeJS.ProcessEnv): Location {
  const variable = (name: string): string | undefined => env[name] || undefined
  const { memory = false } = flags
  const given = [flags.url && '--url', flags.folder && '--folder', memory && '--memory'].filter(Boolean)
  if (given.length > 1)
    throw new WrongUsage({ reason: `${given.join(' and ')} cannot be used together: a store has one location` })
  const isEmbedded = flags.folder !== undefined || memory
  const url = isEmbedded ? undefined : (flags.url ?? variable('RILLFLOW_URL') ?? variable('DATABASE_URL'))
  return {
    url,
    folder: url === undefined && !memory ? (flags.folder ?? variable('RILLFLOW_FOLDER')) : undefined,
    memory,
    schema: flags.schema,
    tenant: flags.tenant,
    defaultTenant: variable('RILLFLOW_TENANT'),
    tenancy: flags.tenancy,
    config: flags.config,
    actor: flags.actor,
  }
}

/** The location that the store is opened with: the line wins over the configuration. */
export function withLocation(
  config: Config,
  location: Location,
): Pick<Config, 'url' | 'pool' | 'folder' | 'schema' | 'memory'> {
  const schema = location.schema ?? config.schema
  if (location.memory) return { memory: true, schema }
  if (location.url !== undefined) return { url: location.url, schema }
  if (location.folder !== undefined) return { folder: location.folder, schema }
  const { url, pool, folder, memory } = config
  // A url that is given but empty is an error of the store, so whether it is given is kept.
  return { ...('url' in config ? { url } : {}), pool, folder, memory, schema }
}

/** Undefined if there is no file. A path that the line gives is returned even if no file is there. */
export function findConfig({ config }: Pick<Location, 'config'>, folder: string): string | undefined {
  if (config !== undefined) return resolve(folder, config)
  return configNames.map(name => join(folder, name)).find(path => existsSync(path))
}

export async function loadConfig(location: Location, folder: string): Promise<LoadedConfig | undefined> {
  const path = findConfig(location, folder)
  if (path === undefined) return undefined
  const shown = relative(folder, path) || path
  const config = await importDefault(path, shown)
  if (typeof config !== 'object' || config === null)
    throw new ConfigFailed({
      path: shown,
      reason: 'its default export must be a configuration: export default defineConfig({ … })',
    })
  return { config: config as Config, path: shown }
}

/** The default export of a module of the user. */
export async function importDefault(path: string, shown: string = path): Promise<unknown> {
  const file = resolve(path)
  if (!existsSync(file)) throw new ConfigFailed({ path: shown, reason: 'the file does not exist' })
  try {
    return (await importModule(file, shown)).default
  } catch (error) {
    if (error instanceof ConfigFailed) throw error
    const reason = error instanceof Error ? error.message : String(error)
    const [, missing] = /^Cannot find (?:package|module) '([\w@][^']*)'/.exec(reason) ?? []
    throw new ConfigFailed({ path: shown, reason, hint: missing && `npm install ${missing}` }, error)
  }
}

async function importModule(path: string, shown: string): Promise<{ default?: unknown }> {
  const url = pathToFileURL(path).href
  let cause: unknown
  if (!needsJiti(path)) {
    try {
      return (await import(url)) as { default?: unknown }
    } catch (error) {
      if (!unstrippable.has((error as { code?: string } | null)?.code ?? '')) throw error
      cause = error
    }
  }
  const jiti = findJiti(path)
  if (jiti === undefined) {
    const what = cause === undefined ? 'TypeScript' : `this TypeScript (${(cause as Error).message})`
    const reason = `Node ${process.versions.node} needs jiti to load ${what}, and jiti is not installed`
    throw new ConfigFailed({ path: shown, reason, hint: installJiti }, cause)
  }
  const { createJiti } = (await import(pathToFileURL(jiti).href)) as { createJiti: CreateJiti }
  // Modules that Node can load are loaded by Node: a second copy of this library would not recognise objects of the first.
  return createJiti(url, { tryNative: true, interopDefault: true }).import(path)
}

/** The codes of Node for TypeScript that is more than types: enums, namespaces, parameter properties, decorators. */
const unstrippable: ReadonlySet<string> = new Set([
  'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX',
  'ERR_INVALID_TYPESCRIPT_SYNTAX',
  'ERR_UNSUPPORTED_NODE_MODULES_TYPE_STRIPPING',
])

export const installJiti = 'npm install --save-dev jiti'

/** Whether a file is in TypeScript and this Node cannot load it by itself. */
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
