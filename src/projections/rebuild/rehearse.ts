/**
 * A rehearsal of a rebuild: new tables are filled as a rebuild fills them, compared with those in use, and dropped. It
 * says which rows the code of this process would change, before anything changes.
 *
 *     shadow tables ──► catch up ──► both at one position? ──► compare by primary key, in one snapshot ──► dropped
 *
 * Guarantees:
 * - The tables in use are only read. Writers and readers of them are not delayed.
 * - The two are compared at one position where the projection reaches the same one within a few tries; otherwise
 *   `isExact` is false, and rows of the newest events can appear as differences.
 *
 * What can fail: as a rebuild. A rehearsal and a rebuild of one projection never run at once (`RebuildRunning`). One that
 * was interrupted leaves its tables to the next rebuild, which continues them.
 */

import { newOwner, take } from '../../consumers/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { sleep } from '../../core/abort.ts'
import { elapsedMs } from '../../core/host.ts'
import type { Transaction } from '../../database/database.ts'
import { fragment, identifier, joinFragments, numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { shadowConsumer, shadowName } from '../consumer.ts'
import { RebuildImpossible, RebuildRunning } from '../errors.ts'
import type { Projection } from '../projection.ts'
import { type ProjectionTable, shadowOf } from '../table.ts'
import { type Build, beginBuild, catchUp, type RebuildOptions, type RebuildParts } from './build.ts'
import { beginShadow, discardShadow } from './shadow.ts'

export type RehearseOptions = Pick<RebuildOptions, 'onProgress' | 'signal'>

export interface Rehearsed {
  /** The position that both were compared at; of the new tables, if it is not exact. */
  readonly position: number
  /** Whether both had applied the same events. */
  readonly isExact: boolean
  /** Events applied to the new tables. */
  readonly events: number
  readonly durationMs: number
  readonly tables: readonly TableDifference[]
}

export interface TableDifference {
  readonly table: string
  /** Rows that are the same in both. */
  readonly same: number
  /** Rows that only the new table has, that only the one in use has, and that differ. */
  readonly added: number
  readonly removed: number
  readonly changed: number
  /** The first 100 of them by primary key. */
  readonly examples: readonly RowDifference[]
}

export interface RowDifference {
  readonly before: Readonly<Record<string, unknown>> | undefined
  readonly after: Readonly<Record<string, unknown>> | undefined
}

const maxExamples = numeral(100)
const maxTries = 10
/** Comparing reads both tables whole. */
const compareMs = 600_000

export async function rehearse(
  { consumers, prepare }: RebuildParts,
  projection: Projection,
  { onProgress, signal }: RehearseOptions,
): Promise<Rehearsed> {
  const { log } = consumers
  const startedAt = elapsedMs()
  log.database.refuseInsideTransaction('rehearse')
  if (projection.lifecycle === 'live' || projection.tables.length === 0)
    throw new RebuildImpossible({ projection: projection.name, reason: 'it has no tables of its own to compare' })
  await prepare(projection)
  await beginShadow(log, projection, false)
  const consumer = shadowConsumer(log, projection)
  const lease = await take(log, shadowName(projection), newOwner(log), consumer.leaseMs)
  if (typeof lease === 'string') throw new RebuildRunning({ projection: projection.name })
  const build = beginBuild({ consumers, consumer, lease, from: lease, signal, onProgress })
  await catchUp(build)
  const compared = await compareAtOnePosition(build, projection)
  await log.database.transaction(tx => discardShadow(log, tx, projection), { changesTables: true })
  return { ...compared, events: build.events, durationMs: elapsedMs() - startedAt }
}

async function compareAtOnePosition(
  build: Build,
  projection: Projection,
): Promise<Pick<Rehearsed, 'position' | 'isExact' | 'tables'>> {
  const { log } = build.consumers
  for (let tries = 1; ; tries++) {
    const found = await log.database.transaction(
      async tx => {
        const inUse = await checkpointOf(log, tx, projection.name)
        const isExact = inUse === build.checkpoint
        if (!isExact && tries < maxTries) return undefined
        const tables: TableDifference[] = []
        for (const table of projection.tables) tables.push(await compare(log, tx, table))
        return { position: build.checkpoint, isExact, tables }
      },
      { isolation: 'repeatable read', timeoutMs: compareMs, signal: build.signal },
    )
    if (found !== undefined) return found
    await sleep(100, { signal: build.signal })
    await catchUp(build)
  }
}

/** An inline projection has applied every event that is visible. */
async function checkpointOf(log: Log, tx: Transaction, name: string): Promise<number> {
  const [row] = await tx.run<{ state: string; checkpoint: number; head: number }>(sql`/* projections.rehearsed */
    select c.state, c.checkpoint, coalesce((select max(position) from ${log.names.events}), 0) as head
    from ${consumerNames(log).consumers} as c
    where c.name = ${name}::text`)
  if (row === undefined) return 0
  return row.state === 'inline' ? row.head : row.checkpoint
}

async function compare(log: Log, tx: Transaction, { name, declared }: ProjectionTable): Promise<TableDifference> {
  const inUse = identifier(log.schema, declared.name)
  const shadow = identifier(log.schema, shadowOf(declared).name)
  const keyOf = (alias: string) => declared.primaryKey.map(key => fragment`${identifier(alias, key)}`)
  const isSame = keyOf('new').map((key, at) => fragment`${key} = ${keyOf('old')[at]!}`)
  const [row] = await tx.run<{
    same: number
    added: number
    removed: number
    changed: number
    examples: { before: Record<string, unknown> | null; after: Record<string, unknown> | null }[] | null
  }>(sql`/* projections.compare */
    with both_tables as materialized (
      select to_jsonb(old) as before, to_jsonb(new) as after
      from ${inUse} as old
      full join ${shadow} as new on ${joinFragments(isSame, ' and ')}
      where to_jsonb(old) is distinct from to_jsonb(new))
    select
      (select count(*) from ${shadow}) - count(*) filter (where after is not null) as same,
      count(*) filter (where before is null) as added,
      count(*) filter (where after is null) as removed,
      count(*) filter (where before is not null and after is not null) as changed,
      (select jsonb_agg(first)
        from (select before, after from both_tables limit ${maxExamples}) as first) as examples
    from both_tables`)
  const { examples, ...counts } = row!
  return {
    table: name,
    ...counts,
    examples: (examples ?? []).map(({ before, after }) => ({ before: before ?? undefined, after: after ?? undefined })),
  }
}
