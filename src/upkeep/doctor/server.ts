/** Checks the database itself: its version, settings and durability, its connections, and whether wake-ups arrive. */
import { settledWithin } from '../../core/abort.ts'
import { oldestMajor } from '../../database/database.ts'
import { factsStatement, type ServerFacts, wrongSettings } from '../../database/settings.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Check, FoundProblem } from './doctor.ts'

/** The rest is for other programs, for people, and for the server's own reserve. */
const maxShareOfServer = 0.8
const maxShareInUse = 0.9

/** The listener tests itself within five seconds of its first connection. */
const maxTestMs = 15_000

export function checkServer(log: Log): Check[] {
  const { database } = log
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
            message: `The server is PostgreSQL ${row!.version}, and the oldest supported version is ${oldestMajor}.`,
            fix: 'Upgrade the server with pg_upgrade.',
          },
        ]
      },
    },
    database.engine === 'pglite' ? embeddedDurability(database.files !== undefined) : serverDurability({ database }),
    {
      name: 'server.tls',
      ok: 'Connections to another machine are encrypted.',
      async find() {
        if (database.engine === 'pglite') return []
        const [row] = await database.run<{ open: boolean }>(sql`/* doctor.tls */
          select not s.ssl and coalesce(a.client_addr <<= '127.0.0.0/8' or a.client_addr = '::1', true) is false as open
          from pg_stat_ssl as s
          join pg_stat_activity as a on a.pid = s.pid
          where s.pid = pg_backend_pid()`)
        if (row?.open !== true) return []
        return [
          {
            level: 'warning',
            message: 'The connections to the server are not encrypted, and it is on another machine.',
            fix: 'Turn on TLS on the server, and remove "ssl: false" or "sslmode=disable" here. Behind a pooler on the same machine as the server this can be left as it is.',
          },
        ]
      },
    },
    {
      name: 'server.connections',
      ok: 'The server has enough connections for this store.',
      async find() {
        if (database.engine === 'pglite') return []
        const [row] = await database.run<{ max: number; used: number }>(sql`/* doctor.connections */
          select current_setting('max_connections')::integer as max,
            (select count(*)::integer from pg_stat_activity where backend_type = 'client backend') as used`)
        const { max, used } = row!
        const problems: FoundProblem[] = []
        if (database.maxConnections > max * maxShareOfServer)
          problems.push({
            level: 'warning',
            message: `This store may open ${database.maxConnections} connections, and the server accepts ${max} in total.`,
            fix: 'Lower maxConnections in openStore, or raise max_connections on the server and restart it.',
          })
        if (used > max * maxShareInUse)
          problems.push({
            level: 'warning',
            message: `${used} of the server's ${max} connections are in use, so it will soon refuse new ones.`,
            fix: 'Lower maxConnections in the programs, put a connection pooler in front of the server, or raise max_connections.',
          })
        return problems
      },
    },
    {
      name: 'server.settings',
      ok: 'The settings of the server leave the text of values as the store needs it.',
      async find() {
        if (database.engine === 'pglite') return []
        const [facts] = await database.run<ServerFacts>(factsStatement())
        return wrongSettings(facts!).map(({ setting, value, expected, advice }) => ({
          level: 'error',
          message: `The setting ${setting} is ${JSON.stringify(value)}, and the store needs ${JSON.stringify(expected)}.`,
          fix: advice,
        }))
      },
    },
    wakeUps(log),
  ]
}

/** With a listener of its own: the doctor may run in a process that follows nothing. */
function wakeUps({ database, channel }: Log): Check {
  return {
    name: 'server.wake_ups',
    ok: 'Appends of other processes arrive at once, or the store was opened without listening.',
    async find() {
      const listener = database.listen(channel, () => {})
      try {
        const isTested = await settledWithin(listener.receives, maxTestMs)
        if (isTested && (await listener.receives) !== false) return []
        return [
          {
            level: 'warning',
            message: isTested
              ? 'Wake-ups do not arrive: a notification that was sent to the listening connection was lost, as in a pooler in transaction mode. Appends of other processes are found by polling only.'
              : 'Wake-ups do not arrive: no listening connection could be made. Appends of other processes are found by polling only.',
            fix: 'Connect to the server itself or to a pooler in session mode. Or open the store with listen: false, so that it does not hold a connection for nothing, and choose pollMs.',
          },
        ]
      } finally {
        await listener.close()
      }
    },
  }
}

/** Settings that give up acknowledged data for speed when they are off. */
const durability = {
  fsync: ['error', 'a crash of the machine can destroy the whole database'],
  full_page_writes: ['error', 'a crash of the machine can leave half-written pages, which cannot be repaired'],
  synchronous_commit: ['warning', 'a crash of the server loses the last commits, although they were acknowledged'],
} as const

function serverDurability({ database }: Pick<Log, 'database'>): Check {
  return {
    name: 'server.durability',
    ok: 'Acknowledged writes survive a crash: fsync, full_page_writes and synchronous_commit are on.',
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
        fix: `Run: alter system set ${name} = on; select pg_reload_conf(). If a role or a database sets it: alter role … reset ${name}.`,
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
            ? 'The embedded database does not sync its files to disk. Acknowledged writes survive the end of the process, but a power cut or a crash of the system can cost the last writes or the whole folder.'
            : 'The store is in memory: its data is lost when it is closed.',
          fix: hasFolder
            ? 'Call store.backup({ output }) regularly, or run: rillflow backup --output DIR. Or open the store on a server ({ url }).'
            : 'Open the store with a folder, or on a server ({ url }), if its data has to be kept.',
        },
      ]
    },
  }
}
