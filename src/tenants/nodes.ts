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
  /** Resolves to whether the node can be used now. */
  opening: Promise<boolean>
  /** Its connections, which stay open while the node does not answer. */
  opened: Database | undefined
  isUsable: boolean
  /** When it was found to be of no use. */
  failedAt: number | undefined
}

/** So long the first call for a node waits for its connection, instead of taking the address that was given. */
const patienceMs = 1_000
/** A node that could not be reached is tried again after this time. */
const retryMs = 10_000

/** `open` connects to the address of a node; `home` is the database that was given. */
export function openNodes(home: Database, open: (node: string) => Promise<Database>): Nodes {
  const nodes = new Map<string, Reached>()
  let isClosed = false

  /** Whether the address of the node leads to it from here. */
  const prove = async (node: string, reached: Reached): Promise<boolean> => {
    try {
      const expected = await home.runArrays(identityOf(node))
      reached.opened ??= shareListeners(await open(node))
      if (isClosed) await reached.opened.close(0)
      const [found] = await reached.opened.runArrays(identityHere)
      return !isClosed && expected.length > 0 && String(found) === String(expected[0])
    } catch {
      return false
    }
  }

  const begin = (node: string, reached: Reached): Reached => {
    nodes.set(node, reached)
    reached.isUsable = false
    reached.failedAt = undefined
    reached.opening = prove(node, reached).then(isUsable => {
      reached.isUsable = isUsable
      reached.failedAt = isUsable ? undefined : elapsedMs()
      return isUsable
    })
    return reached
  }

  return {
    async reach(node) {
      if (isClosed) return home
      const known = nodes.get(node)
      if (known?.isUsable === true) return known.opened!
      const { failedAt } = known ?? {}
      if (failedAt !== undefined && elapsedMs() - failedAt < retryMs) return home
      const reached = known === undefined || failedAt !== undefined ? begin(node, known ?? { ...unknown }) : known
      const isUsable = await Promise.race([reached.opening, sleep(patienceMs)])
      return isUsable === true ? reached.opened! : home
    },
    doubt(node) {
      const known = nodes.get(node)
      if (known?.isUsable === true) begin(node, known)
    },
    async close(closeMs) {
      isClosed = true
      await Promise.race([Promise.all([...nodes.values()].map(({ opening }) => opening)), sleep(closeMs)])
      await Promise.all([...nodes.values()].map(({ opened }) => opened?.close(closeMs)))
    },
  }
}

const unknown: Reached = { opening: Promise.resolve(false), opened: undefined, isUsable: false, failedAt: undefined }

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
