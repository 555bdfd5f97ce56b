/**
 * The directory: which of many servers has which tenant. It is two small tables in a database of their own, or in any
 * other.
 *
 *     (none) ──place──► active ──beginMove──► moving ──endMove──► active, on the other server or on the same
 *
 * Guarantees:
 * - A tenant has one row, and the row exists before the schema does: two processes never place one tenant on two servers.
 * - Each step of a move raises the epoch, and only the mover that holds the row can make a step.
 * - It is asked only by a process that does not know where a tenant is. So a directory that cannot be reached does not
 *   affect tenants whose server is known.
 *
 * What can fail: it cannot be reached (`DirectoryUnreachable`), or was never made (`DirectoryMissing`). A server that
 * cannot be reached affects only its own tenants; the next call tries to connect again.
 */
import { isRillflowError, type RillflowError } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import type { Database, Executor } from '../database/database.ts'
import { shareListeners } from '../database/handle.ts'
import { openPostgres, type PostgresOptions } from '../database/postgres/postgres.ts'
import { identifier, sql } from '../database/sql.ts'
import {
  DirectoryMissing,
  DirectoryUnreachable,
  ServerNotFound,
  TenantElsewhere,
  TenantMoving,
  TenantNotFound,
} from './errors.ts'
import type { Placement, Placements } from './placement.ts'
import { schemaOfTenant } from './tenant-name.ts'

export interface Directory {
  find(tenant: string): Promise<Placement | undefined>
  list(): Promise<Placement[]>
  place(tenant: string, server: string | undefined): Promise<Placement>
  forget(tenant: string): Promise<void>
  servers(): Promise<ListedServer[]>
  addServer(name: string, url: string): Promise<void>
  /** Holds a tenant for a mover; again by the same mover prolongs it. `TenantMoving` if another mover holds it. */
  hold(tenant: string, mover: string, holdMs: number): Promise<MovablePlacement>
  /** Records the server that the tenant is being moved to. */
  beginMove(tenant: string, mover: string, to: string): Promise<MovablePlacement>
  /** The move has ended: with `hasMoved` the tenant is on the new server, otherwise it stays where it was. */
  endMove(tenant: string, mover: string, hasMoved: boolean): Promise<MovablePlacement>
  release(tenant: string, mover: string): Promise<void>
}

export interface ListedServer {
  readonly name: string
  readonly url: string
}

/** The placement of a tenant that may be on the way to another server. */
export interface MovablePlacement extends Placement {
  readonly to: string | undefined
}

interface Row {
  tenant: string
  server: string
  schema: string
  state: Placement['state']
  epoch: number
  moving_to: string | null
}

export interface DirectoryOptions {
  readonly schema: string
  readonly prefix: string
  /** Whether to make the tables if they are missing. */
  readonly create: boolean
}

export async function openDirectory(
  database: Database,
  { schema, prefix, create }: DirectoryOptions,
): Promise<Directory> {
  const servers = identifier(schema, 'servers')
  const tenants = identifier(schema, 'tenants')
  if (create) await makeTables(database, schema)

  const ask = async <T>(question: (executor: Executor) => Promise<T>): Promise<T> => {
    try {
      return await question(database)
    } catch (error) {
      throw toDirectoryError(error, schema)
    }
  }

  return {
    find: tenant =>
      ask(async executor => {
        const row = await readRow(executor, tenant)
        return row === undefined ? undefined : placementOf(row)
      }),
    list: () =>
      ask(async executor => {
        const rows = await executor.run<Row>(sql`/* tenants.list */
          select tenant, server, schema, state, epoch, moving_to
          from ${tenants}
          order by tenant`)
        return rows.map(placementOf)
      }),
    place: (tenant, asked) =>
      ask(async executor => {
        const name = schemaOfTenant(tenant, prefix)
        if (asked !== undefined) await refuseUnknownServer(executor, asked)
        // On the server with the fewest tenants, if none is asked for.
        await executor.run(sql`/* tenants.place */
          insert into ${tenants} (tenant, server, schema)
          select ${tenant}::text, s.name, ${name}::text
          from ${servers} as s
          where s.name = coalesce(${asked ?? null}::text, (
            select o.name
            from ${servers} as o
            order by (select count(*) from ${tenants} as t where t.server = o.name), o.name
            limit 1))
          on conflict (tenant) do nothing`)
        const row = await readRow(executor, tenant)
        if (row === undefined) throw new ServerNotFound({ server: asked ?? 'any', known: [] })
        if (asked !== undefined && row.server !== asked)
          throw new TenantElsewhere({ tenant, server: row.server, asked })
        return placementOf(row)
      }),
    forget: tenant =>
      ask(async executor => {
        await executor.run(sql`/* tenants.forget */
          delete from ${tenants}
          where tenant = ${tenant}::text`)
      }),
    servers: () => ask(executor => readServers(executor)),
    addServer: (name, url) =>
      ask(async executor => {
        checkName('Server', name)
        await executor.run(sql`/* tenants.add_server */
          insert into ${servers} (name, url)
          values (${name}::text, ${url}::text)
          on conflict (name) do update
          set url = excluded.url`)
      }),
    hold: (tenant, mover, holdMs) =>
      ask(async executor => {
        const [row] = await executor.run<Row>(sql`/* tenants.hold */
          update ${tenants}
          set mover = ${mover}::text,
            mover_until = now() + make_interval(secs => ${holdMs}::float8 / 1000)
          where tenant = ${tenant}::text
            and (mover = ${mover}::text or mover_until is null or mover_until < now())
          returning tenant, server, schema, state, epoch, moving_to`)
        if (row !== undefined) return movableOf(row)
        if ((await readRow(executor, tenant)) === undefined) throw new TenantNotFound({ tenant })
        throw new TenantMoving({ tenant, reason: 'another process is moving or dropping it' })
      }),
    beginMove: (tenant, mover, to) =>
      ask(async executor => {
        await refuseUnknownServer(executor, to)
        const rows = await executor.run<Row>(sql`/* tenants.begin_move */
          update ${tenants}
          set state = 'moving',
            moving_to = ${to}::text,
            epoch = epoch + 1
          where tenant = ${tenant}::text
            and mover = ${mover}::text
          returning tenant, server, schema, state, epoch, moving_to`)
        return heldRow(tenant, rows)
      }),
    endMove: (tenant, mover, hasMoved) =>
      ask(async executor => {
        const rows = await executor.run<Row>(sql`/* tenants.end_move */
          update ${tenants}
          set state = 'active',
            server = case when ${hasMoved}::boolean then moving_to else server end,
            moving_to = null,
            epoch = epoch + 1
          where tenant = ${tenant}::text
            and mover = ${mover}::text
          returning tenant, server, schema, state, epoch, moving_to`)
        return heldRow(tenant, rows)
      }),
    release: (tenant, mover) =>
      ask(async executor => {
        await executor.run(sql`/* tenants.release */
          update ${tenants}
          set mover = null,
            mover_until = null
          where tenant = ${tenant}::text
            and mover = ${mover}::text`)
      }),
  }

  async function readRow(executor: Executor, tenant: string): Promise<Row | undefined> {
    const [row] = await executor.run<Row>(sql`/* tenants.find */
      select tenant, server, schema, state, epoch, moving_to
      from ${tenants}
      where tenant = ${tenant}::text`)
    return row
  }

  async function readServers(executor: Executor): Promise<ListedServer[]> {
    return executor.run<ListedServer & object>(sql`/* tenants.servers */
      select name, url
      from ${servers}
      order by name`)
  }

  async function refuseUnknownServer(executor: Executor, server: string): Promise<void> {
    const known = (await readServers(executor)).map(({ name }) => name)
    if (!known.includes(server)) throw new ServerNotFound({ server, known })
  }
}

function placementOf({ moving_to: _, ...row }: Row): Placement {
  return row
}

function movableOf(row: Row): MovablePlacement {
  return { ...placementOf(row), to: row.moving_to ?? undefined }
}

function heldRow(tenant: string, [row]: readonly Row[]): MovablePlacement {
  if (row === undefined) throw new TenantMoving({ tenant, reason: 'another process has taken over its move' })
  return movableOf(row)
}

async function makeTables(database: Database, schema: string): Promise<void> {
  const statements = [
    `create schema if not exists ${identifier(schema)}`,
    `create table if not exists ${identifier(schema, 'servers')} (
  name text primary key,
  url text not null)`,
    `create table if not exists ${identifier(schema, 'tenants')} (
  tenant text primary key,
  server text not null references ${identifier(schema, 'servers')} (name),
  schema text not null,
  state text not null default 'active' check (state in ('active', 'moving')),
  epoch bigint not null default 1,
  moving_to text references ${identifier(schema, 'servers')} (name),
  mover text,
  mover_until timestamptz)`,
  ]
  await database.transaction(async tx => {
    // `if not exists` alone fails when two processes run it at the same time.
    await tx.run(sql`/* tenants.make_lock */
      select pg_advisory_xact_lock(hashtextextended(${`rillflow directory ${schema}`}::text, 0))`)
    for (const text of statements) await tx.run({ label: 'tenants.make', text, values: [] })
  })
}

function toDirectoryError(error: unknown, schema: string): unknown {
  if (!isRillflowError(error)) return error
  if (isRillflowError(error, 'database_failed') && (error as { sqlState?: string }).sqlState === '42P01')
    return new DirectoryMissing({ schema }, error)
  return unreachableCodes.has((error as RillflowError).code)
    ? new DirectoryUnreachable({ reason: (error as RillflowError).message }, error)
    : error
}

const unreachableCodes: ReadonlySet<string> = new Set([
  'connection_lost',
  'database_unreachable',
  'server_full',
  'server_in_recovery',
])

export interface DirectoryPlacementsOptions {
  readonly prefix: string
  /** Addresses that this process uses instead of those in the directory. */
  readonly urls: Readonly<Record<string, string>>
  readonly pool: PostgresOptions
}

/** Tenants on many servers. Each server has one pool, opened when it is first used. */
export function directoryPlacements(
  directory: Directory,
  directoryDatabase: Database,
  { prefix, urls, pool }: DirectoryPlacementsOptions,
): Placements {
  const opened = new Map<string, Promise<Database>>()

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
    home: directoryDatabase,
    databaseOf(server) {
      const known = opened.get(server)
      if (known !== undefined) return known
      const connecting = connect(server)
      opened.set(server, connecting)
      connecting.catch(() => opened.delete(server))
      return connecting
    },
    async close(closeMs) {
      const ends = await Promise.allSettled(opened.values())
      const databases = ends.flatMap(each => (each.status === 'fulfilled' ? [each.value] : []))
      await Promise.all([...databases, directoryDatabase].map(database => database.close(closeMs)))
    },
  }
}
