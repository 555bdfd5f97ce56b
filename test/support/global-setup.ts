/**
 * Gives a project that runs on a server the address of one. Set-ups run one after the other, so the first project starts
 * the servers of all projects in parallel.
 */
import type { TestProject } from 'vitest/node'
import { type PostgresServer, startServer } from './postgres-server.ts'

export type EngineName = 'pglite' | 'postgres-18' | 'postgres-15'

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
  'postgres-15': () => startServer({ major: 15, collation: 'english', settings: { timezone: 'Asia/Kathmandu' } }),
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = process.env.DATABASE_URL
  if (given) {
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
