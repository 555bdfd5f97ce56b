/**
 * Gives a project that runs on a server the address of one. Set-ups run one after the other, so the first project starts
 * the servers of all projects in parallel.
 */
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { type PostgresServer, startServer } from './postgres-server.ts'

/** `counter`: a server whose schemas draw their numbers from counters. `citus`: the cluster of `CITUS_URL`. */
export type EngineName = 'pglite' | 'postgres-18' | 'postgres-15' | 'counter' | 'citus'

declare module 'vitest' {
  interface ProvidedContext {
    engine: EngineName
    /** A superuser's address of a server that all tests of the project share; none on PGlite. */
    postgresUrl?: string
  }
}

const START: Partial<Record<EngineName, () => Promise<PostgresServer>>> = {
  'postgres-18': () => startServer({ major: 18 }),
  // Servers of users rarely order text by bytes or use UTC. Code that relies on either by accident fails here.
  counter: () => startServer({ major: 18, settings: { 'rillflow.numbers': 'counter' } }),
  'postgres-15': () => startServer({ major: 15, collation: 'english', settings: { timezone: 'Asia/Kathmandu' } }),
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = project.name === 'citus' ? process.env.CITUS_URL : process.env.DATABASE_URL
  if (given) {
    if (project.name === 'citus') await prepareCluster(given)
    project.provide('postgresUrl', given)
    return async () => {}
  }
  const servers = serversOf(project)
  const server = await servers.get(project.name)
  project.provide('postgresUrl', server?.url)
  return async () => {
    const started = [...servers.values()]
    servers.clear()
    for (const each of await Promise.allSettled(started)) {
      if (each.status === 'fulfilled') await each.value[Symbol.asyncDispose]()
    }
  }
}

type Servers = Map<string, Promise<PostgresServer>>

/** Each project evaluates this module again; shared state is stored on the run itself. */
function serversOf(project: TestProject): Servers {
  const run = project.vitest as { [shared]?: Servers }
  if (run[shared]) return run[shared]
  const servers: Servers = new Map()
  for (const { name } of project.vitest.projects) {
    const server = START[name as EngineName]?.()
    // The failure of a server that no project uses must not end the run.
    server?.catch(() => {})
    if (server) servers.set(name, server)
  }
  run[shared] = servers
  return servers
}

const shared: unique symbol = Symbol.for('rillflow.test.servers') as never

/**
 * Tests open most stores without tenants, which a cluster refuses unless its database asks for counters by name. All
 * schemas are spread, so every test runs against a node that is not the coordinator.
 */
async function prepareCluster(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    const { rows } = await client.query(`
      select
        (select extversion from pg_extension where extname = 'citus') as version,
        (select count(*)::integer from pg_dist_node where noderole = 'primary' and shouldhaveshards) as nodes`)
    const { version, nodes } = rows[0]
    if (!/^(13\.[2-9]|1[4-9]\.)/.test(version ?? ''))
      throw new Error(`CITUS_URL has Citus ${version}, not 13.2 or newer`)
    if (nodes < 2) throw new Error(`CITUS_URL has ${nodes} nodes that take tenants, and the tests need two`)
    const [name] = (await client.query('select quote_ident(current_database()) as name')).rows
    await client.query(`alter database ${name.name} set rillflow.numbers = 'counter'`)
    await client.query(`alter database ${name.name} set citus.enable_schema_based_sharding = 'on'`)
  } finally {
    await client.end()
  }
}
