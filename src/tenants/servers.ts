/** Tenants spread over many servers: the directory says which, and each server has one pool, opened when it is first used. */

import type { Database } from '../database/database.ts'
import { openPostgres, type PostgresOptions } from '../database/postgres/postgres.ts'
import { shareListeners } from '../database/share-listeners.ts'
import type { Directory } from './directory.ts'
import { ServerNotFound } from './errors.ts'
import type { Placements } from './placement.ts'

export interface ServersOptions {
  readonly prefix: string
  /** Addresses that this process has, rather than those in the directory. */
  readonly urls: Readonly<Record<string, string>>
  readonly pool: PostgresOptions
}

export function serverPlacements(
  directory: Directory,
  directoryDatabase: Database,
  { prefix, urls, pool }: ServersOptions,
): Placements {
  const open = new Map<string, Promise<Database>>()

  const connect = async (server: string): Promise<Database> => {
    const listed = urls[server] === undefined ? await directory.servers() : []
    const url = urls[server] ?? listed.find(({ name }) => name === server)?.url
    if (url === undefined) throw new ServerNotFound({ server, known: listed.map(({ name }) => name) })
    return shareListeners(await openPostgres({ ...pool, url }))
  }

  return {
    traits: { ...directoryDatabase, neighbours: new Set(), maxConnections: pool.maxConnections ?? 10 },
    prefix,
    find: directory.find,
    list: directory.list,
    place: directory.place,
    forget: directory.forget,
    servers: async () => (await directory.servers()).map(({ name }) => name),
    databaseOf(server) {
      const known = open.get(server)
      if (known !== undefined) return known
      const opening = connect(server)
      open.set(server, opening)
      // One that was away is asked again by the next call: only its tenants fail.
      opening.catch(() => open.delete(server))
      return opening
    },
    async close(closeMs) {
      const opened = await Promise.allSettled(open.values())
      const databases = opened.flatMap(each => (each.status === 'fulfilled' ? [each.value] : []))
      await Promise.all([...databases, directoryDatabase].map(database => database.close(closeMs)))
    },
  }
}
