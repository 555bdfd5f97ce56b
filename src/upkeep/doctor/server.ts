/** What the database itself may lose, and whether it has room for us. */
import { oldestMajor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Check, Trouble } from './doctor.ts'

/** Connections that others need: other programs, people, the server's own reserve. */
const mostOfServer = 0.8

export function checkServer({ database }: Log): Check[] {
  return [
    {
      name: 'server.version',
      ok: `The database is PostgreSQL ${oldestMajor} or newer.`,
      async find() {
        const [row] = await database.run<{ number: number; version: string }>(sql`/* doctor.version */
          select current_setting('server_version_num')::integer as number, current_setting('server_version') as version`)
        if (row!.number >= oldestMajor * 10_000) return []
        return [
          {
            level: 'error',
            message: `The server is PostgreSQL ${row!.version}; the oldest supported is ${oldestMajor}.`,
            mend: 'Upgrade the server with pg_upgrade.',
          },
        ]
      },
    },
    database.engine === 'pglite' ? embeddedDurability(database.files !== undefined) : serverDurability({ database }),
    {
      name: 'server.connections',
      ok: 'The server has room for the connections of this store.',
      async find() {
        if (database.engine === 'pglite') return []
        const [row] = await database.run<{ most: number; used: number }>(sql`/* doctor.connections */
          select current_setting('max_connections')::integer as most,
            (select count(*)::integer from pg_stat_activity where backend_type = 'client backend') as used`)
        const { most, used } = row!
        const troubles: Trouble[] = []
        if (database.maxConnections > most * mostOfServer)
          troubles.push({
            level: 'warning',
            message: `This store may open ${database.maxConnections} connections, and the server takes ${most} in all.`,
            mend: 'Lower maxConnections in openStore, or raise max_connections on the server and restart it.',
          })
        if (used > most * 0.9)
          troubles.push({
            level: 'warning',
            message: `${used} of the server's ${most} connections are in use; soon it refuses more.`,
            mend: 'Lower maxConnections of the programs, put a pooler before the server, or raise max_connections.',
          })
        return troubles
      },
    },
  ]
}

/** Settings of which each trades acknowledged data for speed. */
const durability = {
  fsync: ['error', 'a crash of the machine may destroy the whole database'],
  full_page_writes: ['error', 'a crash of the machine may leave pages half written, which cannot be repaired'],
  synchronous_commit: ['warning', 'a crash of the server loses the last commits, which were acknowledged'],
} as const

function serverDurability({ database }: Pick<Log, 'database'>): Check {
  return {
    name: 'server.durability',
    ok: 'What is acknowledged survives a crash: fsync, full_page_writes and synchronous_commit are on.',
    async find() {
      const rows = await database.run<{ name: keyof typeof durability }>(sql`/* doctor.durability */
        select name
        from pg_settings
        where name = any(${Object.keys(durability)}::text[])
          and setting = 'off'
        order by name`)
      return rows.map(({ name }) => ({
        level: durability[name][0],
        message: `The setting ${name} is off: ${durability[name][1]}.`,
        mend: `alter system set ${name} = on; select pg_reload_conf(). If a role or a database sets it: alter role … reset ${name}.`,
      }))
    },
  }
}

function embeddedDurability(hasFolder: boolean): Check {
  return {
    name: 'server.durability',
    ok: '',
    async find() {
      return [
        {
          level: 'warning',
          message: hasFolder
            ? 'The embedded database does not sync its files: what was acknowledged survives the death of the process, but a power cut or a crash of the system may cost the last writes, or the whole folder.'
            : 'The store is in memory: it is gone when it is closed.',
          mend: hasFolder
            ? 'Call store.backup({ output }) regularly, or rillflow backup --output DIR; or open the store on a server ({ url }).'
            : 'Open it with a folder, or on a server ({ url }), if it is to be kept.',
        },
      ]
    },
  }
}
