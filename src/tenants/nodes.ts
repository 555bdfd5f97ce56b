/**
 * The nodes of a cluster, each with connections of its own: a call for a tenant goes to the node that has its rows, which
 * costs the coordinator nothing.
 *
 *     reach(node) ──► its pool, opened on first use ──► it is that node of this cluster ──► its database
 *                                                   └── it is not, or does not answer ──► the database that was given
 *
 * Every node is right, and the tenant's node is only the fastest, so nothing here is ever an error: a node that cannot
 * be reached, or whose address means another server here, is tried again later, and meanwhile its calls take the address
 * that was given. Changes of tables always do, because a cluster takes them on its coordinator alone.
 *
 * The nodes of a managed cluster may have no addresses for its users, but one for all of them (`through`). Each connection
 * to it lands on some node; those that landed on the wrong one are closed, and the next is opened.
 */
import { sleep } from '../core/abort.ts'
import { elapsedMs } from '../core/host.ts'
import type { Database } from '../database/database.ts'
import { shareListeners } from '../database/handle.ts'
import { fragment, type Statement, sql } from '../database/sql.ts'

export interface Nodes {
  /** The database for calls that concern tenants on this node: `10.0.0.2:5432`. */
  reach(node: string): Promise<Database>
  /** A connection to the node was lost: until the node answers again, its calls take the address that was given. */
  doubt(node: string): void
  close(closeMs: number): Promise<void>
}

interface Reached {
  readonly opening: Promise<Database | undefined>
  /** Undefined while it is being opened, and where it cannot be used. */
  database: Database | undefined
  /** When it was found to be of no use. */
  failedAt: number | undefined
}

/** So long the first call for a node waits for its connection, instead of taking the address that was given. */
const patienceMs = 1_000
/** A node that could not be reached is tried again after this time. */
const retryMs = 30_000
const testMs = 1_000

/** `open` connects to the address of a node; `home` is the database that was given. */
export function openNodes(home: Database, open: (node: string) => Promise<Database>): Nodes {
  const nodes = new Map<string, Reached>()
  let isClosed = false

  /** The database of the node, after it has proved to be that node. */
  const connect = async (node: string): Promise<Database | undefined> => {
    let database: Database | undefined
    try {
      const expected = await home.runArrays(identityOf(node))
      database = await open(node)
      const [found] = await database.runArrays(identityHere)
      if (!isClosed && expected.length > 0 && String(found) === String(expected[0])) return shareListeners(database)
    } catch {
      // It cannot be reached from here.
    }
    await database?.close(0).catch(() => {})
    return undefined
  }

  const begin = (node: string): Reached => {
    const reached: Reached = { opening: connect(node), database: undefined, failedAt: undefined }
    nodes.set(node, reached)
    void reached.opening.then(database => {
      reached.database = database
      if (database === undefined) reached.failedAt = elapsedMs()
    })
    return reached
  }

  return {
    async reach(node) {
      if (isClosed) return home
      const known = nodes.get(node)
      if (known?.database !== undefined) return known.database
      const isOver = known?.failedAt !== undefined
      if (isOver && elapsedMs() - known.failedAt! < retryMs) return home
      const { opening } = isOver || known === undefined ? begin(node) : known
      return (await Promise.race([opening, sleep(patienceMs)])) ?? home
    },
    doubt(node) {
      const known = nodes.get(node)
      const { database } = known ?? {}
      if (known === undefined || database === undefined) return
      known.database = undefined
      const answered = database.runArrays(identityHere).then(
        () => true,
        () => false,
      )
      void Promise.race([answered, sleep(testMs)]).then(isThere => {
        if (isThere === true) known.database = database
        else {
          known.failedAt = elapsedMs()
          return database.close(0).catch(() => {})
        }
      })
    },
    async close(closeMs) {
      isClosed = true
      const opened = await Promise.all([...nodes.values()].map(({ opening }) => opening))
      await Promise.all(opened.map(database => database?.close(closeMs)))
    },
  }
}

/** All nodes as a cluster knows them. */
const members = fragment`
  select md5(string_agg(all_nodes.groupid || ' ' || all_nodes.nodename || ' ' || all_nodes.nodeport, ',' order by all_nodes.nodeid))
  from pg_dist_node as all_nodes`

/** An address may be that of another server here, or of a node of another cluster. */
const identityHere = sql`/* tenants.node_here */
  select here.groupid, (${members}) as members
  from pg_dist_local_group as here`

function identityOf(node: string): Statement {
  return sql`/* tenants.node_identity */
    select node.groupid, (${members}) as members
    from pg_dist_node as node
    where node.nodename || ':' || node.nodeport = ${node}::text
      and node.noderole = 'primary'`
}
