/**
 * The names that the last `rillflow status` has seen, for the shell to complete: a line for each, its kind, a tab, the name.
 * They are in the cache of the user, so that a shell reads them without starting anything or asking a database.
 */
import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import type { NamedThing, Opened } from './command.ts'

type Names = Readonly<Record<NamedThing, readonly string[]>>

export async function namesIn({ store, tenancy, config }: Opened): Promise<Names> {
  // Tenants come last: there may be more than the file takes, and the others are few.
  return {
    projection: (await store.projections.list()).map(each => each.name),
    subscription: (await store.subscriptions.list()).map(each => each.name),
    'dead-letter': (await store.deadLetters.stats()).map(each => each.consumer),
    handler: store.workflows.registered(),
    collection: (config.collections ?? []).map(each => each.name),
    tenant: tenancy === undefined ? [] : (await tenancy.tenants.list()).map(each => each.tenant),
  }
}

/** All of them or none: a shell may read meanwhile. */
export async function rememberNames(names: Names): Promise<void> {
  const path = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'rillflow', 'names')
  const draft = `${path}.${process.pid}`
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  try {
    await writeFile(draft, linesOf(names), { mode: 0o600 })
    await rename(draft, path)
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
}

const maxNames = 1000
const maxBytes = 64 * 1024
/** Shells put what they complete into the line as it is. What would mean something to one of them there is left out. */
const plain = /^[\p{L}\p{N}_][\p{L}\p{N}_.:/%+#-]*$/u

function linesOf(names: Names): string {
  const lines = Object.entries(names)
    .flatMap(([thing, each]) => each.filter(name => plain.test(name)).map(name => `${thing}\t${name}\n`))
    .slice(0, maxNames)
  let bytes = 0
  return lines
    .filter(line => {
      bytes += Buffer.byteLength(line)
      return bytes <= maxBytes
    })
    .join('')
}
