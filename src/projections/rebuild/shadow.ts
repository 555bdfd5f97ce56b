/**
 * Rebuilding into shadow tables: new tables are filled while the old ones are read, and then replace them.
 *
 *     begin: tables …__rebuild and a row ──► catch up ──► statistics ──► switch ──► the old tables and the row are gone
 *              ▲ interrupted: resumed            ▲                         │ locks not granted, last events failed
 *              └ by other code: discarded        └─────────────────────────┘
 *
 * Guarantees:
 * - The tables and the row are made in one transaction and deleted in one, so the row always says how far the tables
 *   are.
 * - Two rebuilds of one projection never run at once: the row has a lease.
 * - The old tables stay in use until the switch, whatever happens before.
 *
 * What can fail: `RebuildRunning`; `ViewsDepend`; the failure policy of the projection stops at an event; the locks for the
 * switch are not granted within `switchMs` (`TimedOut`). The rebuild can then be resumed.
 */

import { createHash } from 'node:crypto'
import type { Consumers } from '../../consumers/consumers.ts'
import { removeAll } from '../../consumers/dead-letters/row.ts'
import { putAside, takeOver } from '../../consumers/operator.ts'
import { ensure, forget, isHeld, type Lease, newOwner, release, renew, take } from '../../consumers/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { sleep } from '../../core/abort.ts'
import { TimedOut } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { type Backoff, delay } from '../../core/retry.ts'
import type { Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { type DeclaredTable, indexesOf } from '../../schema/table.ts'
import { createIndex, createTable, stampIndex } from '../../schema/table-sql.ts'
import { shadowConsumer, shadowName } from '../consumer.ts'
import { RebuildRunning } from '../errors.ts'
import type { Projection } from '../projection.ts'
import { shadowOf } from '../table.ts'
import {
  type Build,
  beginBuild,
  catchUp,
  isLocked,
  type RebuildOptions,
  type RebuildParts,
  report,
  startOfBuild,
  stateOf,
} from './build.ts'
import { ddl, refuseDependents, switchTables, TailFailed, turnOf } from './switch.ts'

export async function rebuildIntoShadow(
  { consumers }: RebuildParts,
  projection: Projection,
  options: RebuildOptions,
): Promise<Build> {
  const { log } = consumers
  const { signal, onProgress } = options
  for (const { declared } of projection.tables)
    await refuseDependents(log.database, projection.name, identifier(log.schema, declared.name))
  await beginShadow(log, projection, options.restart ?? false)
  const consumer = shadowConsumer(log, projection)
  const lease = await take(log, shadowName(projection), newOwner(log), consumer.leaseMs)
  if (typeof lease === 'string') throw new RebuildRunning({ projection: projection.name })
  try {
    const build = beginBuild({ consumers, consumer, lease, from: lease, signal, onProgress })
    await catchUp(build)
    await gatherStatistics(consumers, projection)
    await switchWhenPossible(build, projection, lease, options)
    return build
  } catch (error) {
    await putAside(log, lease).catch(() => {})
    throw error
  }
}

/**
 * Makes the tables and the row, unless a rebuild by the same code was interrupted: that rebuild is resumed. One by other code
 * is discarded, since some of its rows were written by the old code.
 */
export async function beginShadow(log: Log, projection: Projection, restart: boolean): Promise<void> {
  const name = shadowName(projection)
  const print = fingerprint(projection)
  await log.database.transaction(
    async tx => {
      for (;;) {
        const [row] = await tx.run<{ print: string | null; held: boolean }>(sql`/* projections.shadow */
        select c.definition ->> 'fingerprint' as print, ${isHeld(log)} as held
        from ${consumerNames(log).consumers} as c
        where c.name = ${name}::text
        for update`)
        if (row?.held === true) throw new RebuildRunning({ projection: projection.name })
        if (row !== undefined && row.print === print && !restart) return
        if (row !== undefined) await discardShadow(log, tx, projection)
        const checkpoint = await startOfBuild(log, projection, tx)
        const tables = projection.tables.map(({ declared }) => shadowOf(declared).name)
        const definition = { rebuilds: projection.name, fingerprint: print, tables }
        const [made] = await ensure(log, [{ name, kind: 'projection', checkpoint, definition }], tx)
        // Another process has just begun.
        if (made === undefined) continue
        for (const { declared } of projection.tables) await makeShadow(log, tx, shadowOf(declared))
        return
      }
    },
    { changesTables: true },
  )
}

/** Deletes the row, its dead letters and the tables. */
export async function discardShadow(log: Log, tx: Transaction, projection: Projection): Promise<void> {
  const name = shadowName(projection)
  await removeAll(log, [name], tx)
  await forget(log, [name], tx)
  for (const { declared } of projection.tables) await dropTable(log, tx, shadowOf(declared))
}

async function makeShadow(log: Log, tx: Transaction, shadow: DeclaredTable): Promise<void> {
  await dropTable(log, tx, shadow)
  await ddl(tx, createTable(log.schema, shadow), shadow.name)
  for (const index of indexesOf(shadow)) {
    await ddl(tx, createIndex(log.schema, shadow, index), index.name)
    await ddl(tx, stampIndex(log.schema, index), index.name)
  }
}

async function dropTable(log: Log, tx: Transaction, declared: DeclaredTable): Promise<void> {
  await ddl(tx, `drop table if exists ${identifier(log.schema, declared.name)}`, declared.name)
}

/** Differs for other tables and for another text of the code. */
function fingerprint(projection: Projection): string {
  const tables = projection.tables.map(({ declared }) => declared)
  return createHash('sha256')
    .update(JSON.stringify([projection.source, tables, projection.filter.types ?? null]))
    .digest('hex')
}

const backoff: Backoff = { baseMs: 50, factor: 2, maxMs: 5_000, jitter: 0.5 }
const maxFailures = 10

/** Catches up before each try, because events are appended meanwhile. */
async function switchWhenPossible(
  build: Build,
  projection: Projection,
  lease: Lease,
  { signal, switchMs = 600_000 }: RebuildOptions,
): Promise<void> {
  const { log } = build.consumers
  const until = elapsedMs() + switchMs
  let failures = 0
  for (let attempt = 1; ; attempt++) {
    await catchUp(build)
    report(build, 'switching', build.checkpoint)
    const isInline = (await stateOf(build.consumers.log, projection.name)) === 'inline'
    // So that no batch begins while the switch waits for its locks, and the model in use stays where it is.
    const held = isInline ? undefined : await takeOver(log, projection.name, build.consumer.leaseMs)
    try {
      const goal = held?.checkpoint
      for (let turn = 1; ; turn++) {
        await renew(log, lease, build.consumer.leaseMs)
        const turnMs = turnOf(turn)
        const switching = { log, projection, shadow: build.consumer, lease, goal, turnMs, signal, isInline }
        const done = await switchTables(switching)
        build.checkpoint = done.position
        build.events += done.events
        if (done.isWhole) return
      }
    } catch (error) {
      if (held !== undefined) await release(log, [held]).catch(() => {})
      build.consumers.wake.changed()
      if (error instanceof TailFailed) {
        if (++failures > maxFailures) throw error.cause ?? error
      } else if (!isLocked(error)) throw error
      if (elapsedMs() > until)
        throw new TimedOut({ what: `Getting the locks to switch "${projection.name}"`, timeoutMs: switchMs }, error)
      await sleep(delay(backoff, attempt), { signal })
    }
  }
}

/** So that the planner knows the size of the new tables before the first query reads them. */
async function gatherStatistics({ log }: Consumers, { tables }: Projection): Promise<void> {
  for (const { declared } of tables) {
    const name = identifier(log.schema, shadowOf(declared).name)
    await log.database.run({
      label: 'projections.analyze',
      text: `/* projections.analyze */ analyze ${name}`,
      values: [],
    })
  }
}
