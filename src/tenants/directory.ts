/**
 * The directory: which tenant is on which of many servers. Two small tables in a database of their own, or of any.
 *
 *     (none) ──place──► active ──begin──► moving ──end──► active, on the other server, or where it was
 *                                                         each step adds one to the epoch, and only who holds it can make it
 *
 * It says who owns a tenant, and is asked only when a process does not know: a directory that is away stops nobody who
 * does. A row is there before the schema is, so that no two processes place one tenant on two servers.
 */
import { isRillflowError, type RillflowError } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import type { Database, Executor } from '../database/database.ts'
import { identifier, sql } from '../database/sql.ts'
import {
  DirectoryMissing,
  DirectoryUnreachable,
  ServerNotFound,
  TenantElsewhere,
  TenantMoving,
  TenantNotFound,
} from './errors.ts'
import type { Placement } from './placement.ts'
import { schemaOfTenant } from './tenant-name.ts'

export interface Directory {
  find(tenant: string): Promise<Placement | undefined>
  list(): Promise<Placement[]>
  place(tenant: string, server: string | undefined): Promise<Placement>
  forget(tenant: string): Promise<void>
  servers(): Promise<{ name: string; url: string }[]>
  addServer(name: string, url: string): Promise<void>
  /** Takes hold of a tenant, to move it; again by the same mover prolongs that. `TenantMoving` if another has it. */
  hold(tenant: string, mover: string, holdMs: number): Promise<Journey>
  /** Says where it is on its way to. */
  begin(tenant: string, mover: string, to: string): Promise<Journey>
  /** It is where it was on its way to, or, if it has not moved, stays where it is. */
  end(tenant: string, mover: string, hasMoved: boolean): Promise<Journey>
  /** Lets go of it. */
  release(tenant: string, mover: string): Promise<void>
}

/** A tenant that may be on its way. */
export interface Journey extends Placement {
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

export async function openDirectory(
  database: Database,
  { schema, prefix, makes }: { schema: string; prefix: string; makes: boolean },
): Promise<Directory> {
  const servers = identifier(schema, 'servers')
  const tenants = identifier(schema, 'tenants')
  if (makes) await makeTables(database, schema)

  const ask = async <T>(question: (executor: Executor) => Promise<T>): Promise<T> => {
    try {
      return await question(database)
    } catch (error) {
      throw explained(error, schema)
    }
  }
  const placed = ({ moving_to: _, ...row }: Row): Placement => row
  const journey = (row: Row): Journey => ({ ...placed(row), to: row.moving_to ?? undefined })

  return {
    find: tenant =>
      ask(async executor => {
        const row = await read(executor, tenant)
        return row === undefined ? undefined : placed(row)
      }),
    list: () =>
      ask(async executor => {
        const rows = await executor.run<Row>(sql`/* tenants.list */
          select tenant, server, schema, state, epoch, moving_to
          from ${tenants}
          order by tenant`)
        return rows.map(placed)
      }),
    place: (tenant, asked) =>
      ask(async executor => {
        const name = schemaOfTenant(tenant, prefix)
        if (asked !== undefined) await refuseUnknown(executor, asked)
        // The server with the fewest, if none is asked for.
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
        const row = await read(executor, tenant)
        if (row === undefined) throw new ServerNotFound({ server: asked ?? 'any', known: [] })
        if (asked !== undefined && row.server !== asked)
          throw new TenantElsewhere({ tenant, server: row.server, asked })
        return placed(row)
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
            mover_until = clock_timestamp() + make_interval(secs => ${holdMs}::float8 / 1000)
          where tenant = ${tenant}::text
            and (mover = ${mover}::text or mover_until is null or mover_until < clock_timestamp())
          returning tenant, server, schema, state, epoch, moving_to`)
        if (row !== undefined) return journey(row)
        if ((await read(executor, tenant)) === undefined) throw new TenantNotFound({ tenant })
        throw new TenantMoving({ tenant, reason: 'somebody else is at it' })
      }),
    begin: (tenant, mover, to) =>
      ask(async executor => {
        await refuseUnknown(executor, to)
        const rows = await executor.run<Row>(sql`/* tenants.begin */
          update ${tenants}
          set state = 'moving',
            moving_to = ${to}::text,
            epoch = epoch + 1
          where tenant = ${tenant}::text
            and mover = ${mover}::text
          returning tenant, server, schema, state, epoch, moving_to`)
        return held(tenant, rows)
      }),
    end: (tenant, mover, hasMoved) =>
      ask(async executor => {
        const rows = await executor.run<Row>(sql`/* tenants.end */
          update ${tenants}
          set state = 'active',
            server = case when ${hasMoved}::boolean then moving_to else server end,
            moving_to = null,
            epoch = epoch + 1
          where tenant = ${tenant}::text
            and mover = ${mover}::text
          returning tenant, server, schema, state, epoch, moving_to`)
        return held(tenant, rows)
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

  function held(tenant: string, [row]: readonly Row[]): Journey {
    if (row === undefined) throw new TenantMoving({ tenant, reason: 'somebody else has taken over its move' })
    return journey(row)
  }

  async function read(executor: Executor, tenant: string): Promise<Row | undefined> {
    const [row] = await executor.run<Row>(sql`/* tenants.find */
      select tenant, server, schema, state, epoch, moving_to
      from ${tenants}
      where tenant = ${tenant}::text`)
    return row
  }

  async function readServers(executor: Executor): Promise<{ name: string; url: string }[]> {
    return executor.run<{ name: string; url: string }>(sql`/* tenants.servers */
      select name, url
      from ${servers}
      order by name`)
  }

  async function refuseUnknown(executor: Executor, server: string): Promise<void> {
    const known = (await readServers(executor)).map(({ name }) => name)
    if (!known.includes(server)) throw new ServerNotFound({ server, known })
  }
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
    // `if not exists` alone fails when two do it at once.
    await tx.run(sql`/* tenants.make_lock */
      select pg_advisory_xact_lock(hashtextextended(${`rillflow directory ${schema}`}::text, 0))`)
    for (const text of statements) await tx.run({ label: 'tenants.make', text, values: [] })
  })
}

function explained(error: unknown, schema: string): unknown {
  if (!isRillflowError(error)) return error
  if (isRillflowError(error, 'database_failed') && (error as { sqlState?: string }).sqlState === '42P01')
    return new DirectoryMissing({ schema }, error)
  return awayCodes.has((error as RillflowError).code)
    ? new DirectoryUnreachable({ reason: (error as RillflowError).message }, error)
    : error
}

const awayCodes: ReadonlySet<string> = new Set(['database_unreachable', 'connection_lost', 'server_in_recovery'])
