/**
 * Placements on a Citus cluster: each tenant is a schema that Citus has placed, as a whole, on one of its nodes. Which one,
 * and how it gets to another, is Citus' own business; this is only the way to ask for it.
 *
 *     find, list    the node of a schema, from Citus' catalogue; there is no directory that could disagree with it
 *     place         left to Citus, which takes its nodes in turn
 *     move          `citus_schema_move`: the rows are copied while they are used, and at the end writers wait for a moment
 *     rebalance     `citus_rebalance_start`: Citus moves schemas until its nodes are about equally full
 *
 * Every node is right: a statement that arrives at one finds the rows wherever they are, also during a move. So there are no
 * epochs, no states and no errors for clients. All statements go to the address that was given.
 *
 * What can fail: a node that is not known, or takes no tenants, is refused by Citus with its own sentence
 * (`DatabaseFailed`). A move that is interrupted leaves the tenant where it was, and Citus removes the copy.
 */
import { sleep, throwIfAborted } from '../core/abort.ts'
import { InvalidOption } from '../core/errors.ts'
import type { Database } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { hasCitus } from '../schema/numbers.ts'
import { RebalanceFailed } from './errors.ts'

export interface Cluster {
  /** The nodes that take tenants: `10.0.0.2:5432`. */
  nodes(): Promise<string[]>
  /** The node of each of these schemas, of all without an argument. */
  nodesOf(schema?: string): Promise<Map<string, string>>
  /** Moves a schema to a node. */
  move(schema: string, node: string, options?: ClusterMoveOptions): Promise<void>
  /** Moves schemas until the nodes are about equally full. */
  rebalance(options?: RebalanceOptions): Promise<Rebalanced>
}

export interface ClusterMoveOptions {
  readonly onProgress?: ((progress: { readonly copiedBytes: number; readonly bytes: number }) => void) | undefined
  readonly signal?: AbortSignal | undefined
}

export interface RebalanceOptions {
  onProgress?: ((progress: RebalanceProgress) => void) | undefined
  signal?: AbortSignal | undefined
}

export interface RebalanceProgress {
  /** Moves of tenants that are done, of `total`. */
  readonly done: number
  readonly total: number
}

export interface Rebalanced {
  /** The number of tenants that were moved. */
  readonly moved: number
}

/** How often Citus is asked how far it is. */
const progressMs = 500
/** A tenant of any size is moved in less. */
const moveTimeoutMs = 24 * 3_600_000

/** Undefined for a database that belongs to no cluster. */
export async function findCluster(database: Database): Promise<Cluster | undefined> {
  if (database.engine !== 'postgres') return undefined
  const [row] = await database.run<{ found: boolean }>(sql`/* tenants.cluster */
    select ${hasCitus} as found`)
  return row!.found ? openCluster(database) : undefined
}

function openCluster(database: Database): Cluster {
  const nodes = async (): Promise<string[]> => {
    const rows = await database.runArrays(sql`/* tenants.nodes */
      select nodename || ':' || nodeport
      from pg_dist_node
      where noderole = 'primary'
        and isactive
        and shouldhaveshards
      order by nodename, nodeport`)
    return rows.map(([node]) => node as string)
  }

  return {
    nodes,
    async nodesOf(schema) {
      // A schema has at least its table of migrations, and all its tables are on one node.
      const rows = await database.runArrays(sql`/* tenants.placed */
        select n.nspname::text, node.nodename || ':' || node.nodeport
        from pg_dist_schema as s
        join pg_namespace as n on n.oid = s.schemaid
        join pg_class as c on c.relnamespace = n.oid and c.relname = 'migrations'
        join pg_dist_shard as shard on shard.logicalrelid = c.oid
        join pg_dist_placement as placed on placed.shardid = shard.shardid
        join pg_dist_node as node on node.groupid = placed.groupid and node.noderole = 'primary'
        where ${schema ?? null}::text is null
          or n.nspname = ${schema ?? null}::text`)
      return new Map(rows as [string, string][])
    },
    async move(schema, node, { onProgress, signal } = {}) {
      const { host, port } = addressOf(node)
      throwIfAborted(signal)
      const moving = database.run({
        label: 'tenants.move_schema',
        text: '/* tenants.move_schema */ select citus_schema_move($1::text::regnamespace, $2::text, $3::integer)',
        values: [`"${schema.replaceAll('"', '""')}"`, host, port],
        unprepared: true,
        alone: { timeoutMs: moveTimeoutMs },
      })
      let isOver = false
      const over = moving.finally(() => {
        isOver = true
      })
      over.catch(() => {})
      while (!isOver && onProgress !== undefined) {
        await Promise.race([over, sleep(progressMs)]).catch(() => {})
        if (isOver) break
        const [row] = await database.run<{ copied: number; bytes: number }>(sql`/* tenants.move_progress */
          select coalesce(sum(target_shard_size), 0)::bigint as copied,
            coalesce(sum(source_shard_size), 0)::bigint as bytes
          from get_rebalance_progress()`)
        onProgress({ copiedBytes: row!.copied, bytes: row!.bytes })
      }
      await over
    },
    async rebalance({ onProgress, signal } = {}) {
      const before = await this.nodesOf()
      throwIfAborted(signal)
      const [started] = await database.run<{ job: number | null }>(sql`/* tenants.rebalance */
        select citus_rebalance_start() as job`)
      try {
        // Without a job there is nothing to move.
        while (started?.job != null) {
          const [row] = await database.run<RebalanceRow>(sql`/* tenants.rebalance_status */
            select state::text,
              coalesce((details->'task_state_counts'->>'done')::integer, 0) as done,
              (select coalesce(sum(t.value::integer), 0)::integer
                from jsonb_each_text(details->'task_state_counts') as t) as total,
              details::text as details
            from citus_rebalance_status()
            where job_id = ${started.job}::bigint`)
          if (row === undefined || row.state === 'finished') break
          if (row.state === 'failed' || row.state === 'cancelled')
            throw new RebalanceFailed({ state: row.state, details: row.details })
          onProgress?.({ done: row.done, total: row.total })
          await sleep(progressMs, { signal })
        }
      } catch (error) {
        if (signal?.aborted)
          await database.run(sql`/* tenants.rebalance_stop */
            select citus_rebalance_stop()`)
        throw error
      }
      const after = await this.nodesOf()
      return { moved: [...after].filter(([schema, node]) => before.has(schema) && before.get(schema) !== node).length }
    },
  }
}

interface RebalanceRow {
  readonly state: string
  readonly done: number
  readonly total: number
  readonly details: string
}

function addressOf(node: string): { host: string; port: number } {
  const [, host, port] = /^(.+):(\d+)$/.exec(node) ?? []
  if (host !== undefined && port !== undefined) return { host, port: Number(port) }
  throw new InvalidOption({
    option: 'server',
    reason: `The option "server" is ${JSON.stringify(node)}. On a cluster it must be a node, as in '10.0.0.2:5432'; store.tenants.servers() lists them.`,
  })
}
