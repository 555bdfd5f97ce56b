/**
 * Sizes and statistics of the tables of a schema, from the server that has their rows. On a cluster the catalogue of the node
 * asked knows the names only, and the node that has the rows is asked by all nodes alike.
 */
import type { Executor } from '../database/database.ts'
import { literal, type Statement, sql } from '../database/sql.ts'
import { hasCitus } from './numbers.ts'

export interface TableFacts {
  readonly name: string
  /** With its indexes, and its values that are stored apart. */
  readonly bytes: number
  /** The values that are stored apart. */
  readonly toastBytes: number
  /** How many rows it has, as the server estimates it; below zero if it never did. */
  readonly estimate: number
  readonly dead: number
  readonly live: number
}

export async function readTableFacts(executor: Executor, schema: string): Promise<ReadonlyMap<string, TableFacts>> {
  const facts = (await isOnNodes(executor))
    ? await factsOfNodes(executor, schema)
    : await executor.run<TableFacts>(factsHere(schema))
  return new Map(facts.map(each => [each.name, each]))
}

/** Whether the database belongs to a cluster, whose nodes have the rows of its schemas. */
export async function isOnNodes(executor: Executor): Promise<boolean> {
  const [row] = await executor.run<{ placed: boolean }>(sql`/* schema.has_nodes */
    select ${hasCitus} as placed`)
  return row!.placed
}

function factsHere(schema: string): Statement {
  return sql`/* schema.table_facts */
    select c.relname::text as name,
      pg_total_relation_size(c.oid)::float8 as bytes,
      coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0)::float8 as "toastBytes",
      c.reltuples::float8 as estimate,
      pg_stat_get_dead_tuples(c.oid)::float8 as dead,
      pg_stat_get_live_tuples(c.oid)::float8 as live
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema}::text
      and c.relkind = 'r'`
}

/** A table that is not spread, such as one that was made by hand, is not among them. */
async function factsOfNodes(executor: Executor, schema: string): Promise<TableFacts[]> {
  const command = `
    select coalesce(json_agg(json_build_object(
      'name', shell.relname,
      'bytes', pg_total_relation_size(c.oid),
      'toastBytes', coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0),
      'estimate', c.reltuples,
      'dead', pg_stat_get_dead_tuples(c.oid),
      'live', pg_stat_get_live_tuples(c.oid))), '[]')::text
    from pg_dist_shard as s
    join pg_class as shell on shell.oid = s.logicalrelid
    join pg_namespace as n on n.oid = shell.relnamespace
    join pg_class as c on c.oid = to_regclass(shard_name(s.logicalrelid, s.shardid))
    where n.nspname = ${literal(schema)}`
  return readFromNodes<TableFacts>(executor, command)
}

/** The rows of a query on each node of a cluster, which gives them as one JSON array. A node that is down gives none. */
export async function readFromNodes<R>(executor: Executor, query: string): Promise<R[]> {
  const answers = await executor.run<{ rows: string }>(sql`/* schema.ask_nodes */
    select answered.result as rows
    from run_command_on_all_nodes(${query}::text) as answered
    where answered.success`)
  return answers.flatMap(({ rows }) => JSON.parse(rows) as R[])
}
