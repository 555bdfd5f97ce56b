/**
 * Rebuilding a read model where it stands, for a projection that only knows how to empty it.
 *
 *     active ──taken over, marked──► rebuilding ──reset, checkpoint back, one transaction──► filled ──► active
 *
 * The operator wins: a batch that is under way is refused by its fence. Nobody else can take the lease meanwhile. A row
 * that says `reset: pending` has not been emptied yet; one that says `done` is filled as far as its checkpoint says.
 */

import { LeaseLost } from '../../consumers/errors.ts'
import { type Lease, newOwner } from '../../consumers/lease.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { sleep } from '../../core/lifecycle.ts'
import { type Backoff, delay } from '../../core/retry.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { inPlaceConsumer } from '../consume.ts'
import { RebuildImpossible, RebuildRunning } from '../errors.ts'
import { type Projection, userContext } from '../projection.ts'
import { tableNames } from '../table.ts'
import { type Build, beginBuild, catchUp, isLocked, type RebuildOptions, type RebuildParts } from './build.ts'

const waits: Backoff = { baseMs: 50, factor: 2, maxMs: 2_000, jitter: 0.5 }
const resetTries = 20

export async function rebuildInPlace(
  { consumers }: RebuildParts,
  projection: Projection,
  { signal, onProgress, restart = false }: RebuildOptions,
): Promise<Build> {
  const { log } = consumers
  if (projection.reset === undefined) {
    const reason =
      'it declares no tables and has no reset hook, so its events would be counted twice. Declare its tables, or give it a reset'
    throw new RebuildImpossible({ projection: projection.name, reason })
  }
  const consumer = inPlaceConsumer(log, projection)
  const taken = await takeForRebuild(log, projection.name, consumer.leaseMs, restart)
  try {
    const lease = taken.isReset ? taken.lease : await resetModel(log, projection, taken.lease, signal)
    const build = beginBuild({ consumers, consumer, lease, from: lease, signal, onProgress })
    await catchUp(build)
    await finish(log, lease)
    return build
  } catch (error) {
    await giveBack(log, taken).catch(() => {})
    throw error
  }
}

interface Taken {
  readonly lease: Lease
  /** Whether the read model has been emptied already. */
  readonly isReset: boolean
  readonly wasPaused: boolean
}

async function takeForRebuild(log: Log, name: string, leaseMs: number, restart: boolean): Promise<Taken> {
  const owner = newOwner(log)
  const sign = log.database.soleUser ?? null
  const [row] = await log.database.run<{
    fence: number
    checkpoint: number
    attempts: number
    reset: string
    paused: boolean
  }>(
    sql`/* projections.take_for_rebuild */
      update ${consumerNames(log).consumers} as c
      set definition = case
          when c.state = 'rebuilding' and not ${restart}::boolean then c.definition
          else c.definition || '{"reset": "pending"}'
        end,
        state = 'rebuilding',
        owner = ${owner}::text,
        fence = nextval(${consumerNames(log).consumers_fence.quoted}::regclass),
        lease_until = ${log.names.clock}(c.lease_until) + make_interval(secs => ${leaseMs}::float8 / 1000)
      where c.name = ${name}::text
        and (c.state = 'active'
          or (c.state = 'rebuilding' and (c.owner is null
            or c.lease_until <= ${log.names.clock}(c.lease_until)
            or (${sign}::text is not null and split_part(c.owner, '/', 1) <> ${sign}::text))))
      returning c.fence, c.checkpoint, c.attempts, c.definition ->> 'reset' as reset, c.paused_at is not null as paused`,
  )
  if (row !== undefined) {
    const { fence, checkpoint, attempts } = row
    const lease = { consumer: name, owner, fence, checkpoint, attempts, retryInMs: 0 }
    return { lease, isReset: row.reset === 'done', wasPaused: row.paused }
  }
  const [state] = await log.database.run<{ state: string }>(sql`/* projections.state */
    select state
    from ${consumerNames(log).consumers}
    where name = ${name}::text`)
  if (state?.state !== 'inline') throw new RebuildRunning({ projection: name })
  const reason = 'it is inline and has no tables of its own that could be built beside it. Make it async first'
  throw new RebuildImpossible({ projection: name, reason })
}

/** Empties the read model and moves the checkpoint back, both or neither. Dead letters come again if they fail again. */
async function resetModel(
  log: Log,
  projection: Projection,
  lease: Lease,
  signal: AbortSignal | undefined,
): Promise<Lease> {
  const { startFrom, timeoutMs } = projection.options
  const checkpoint = typeof startFrom === 'number' ? startFrom : 0
  for (let attempt = 1; ; attempt++) {
    try {
      await log.database.transaction(
        async tx => {
          const never = new AbortController().signal
          const tables = tableNames(log.schema, projection)
          const given = { tx, tables, attempt: 1, isReplay: false, isRebuild: true, isInline: false, at: () => {} }
          await projection.reset!(userContext(projection.name, { ...given, signal: signal ?? never }))
          await tx.run(sql`/* projections.close_letters */
            update ${consumerNames(log).dead_letters} as d
            set state = 'replayed',
              retry_at = null,
              history = d.history || jsonb_build_array(jsonb_build_object(
                'at', ${log.names.clock}(d.last_failed_at), 'from', d.state, 'to', 'replayed', 'note', 'rebuilt'))
            where d.consumer = ${projection.name}::text
              and d.state in ('open', 'retrying')`)
          const rows = await tx.run(sql`/* projections.rewind */
            update ${consumerNames(log).consumers}
            set checkpoint = ${checkpoint}::bigint,
              attempts = 0,
              retry_at = null,
              last_error = null,
              definition = definition || '{"reset": "done"}'
            where name = ${lease.consumer}::text
              and fence = ${lease.fence}::bigint
            returning name`)
          if (rows.length === 0) throw new LeaseLost({ consumer: lease.consumer, fence: lease.fence })
        },
        { timeoutMs, signal, lockTimeoutMs: 5_000 },
      )
      return { ...lease, checkpoint, attempts: 0 }
    } catch (error) {
      if (!isLocked(error) || attempt === resetTries) throw error
      await sleep(delay(waits, attempt), { signal })
    }
  }
}

async function finish(log: Log, lease: Lease): Promise<void> {
  const rows = await log.database.run(sql`/* projections.rebuilt */
    update ${consumerNames(log).consumers}
    set state = 'active',
      owner = null,
      lease_until = null,
      definition = definition - 'reset',
      fence = nextval(${consumerNames(log).consumers_fence.quoted}::regclass)
    where name = ${lease.consumer}::text
      and fence = ${lease.fence}::bigint
    returning name`)
  if (rows.length === 0) throw new LeaseLost({ consumer: lease.consumer, fence: lease.fence })
}

/** Still marked: what is there is not the whole read model. A reset that did not happen is none, and its policy pauses only the rebuild. */
async function giveBack(log: Log, { lease, wasPaused }: Taken): Promise<void> {
  await log.database.run(sql`/* projections.give_back */
    update ${consumerNames(log).consumers}
    set owner = null,
      lease_until = null,
      paused_at = case when ${wasPaused}::boolean then paused_at end,
      state = case when definition ->> 'reset' = 'pending' then 'active' else state end,
      definition = case when definition ->> 'reset' = 'pending' then definition - 'reset' else definition end
    where name = ${lease.consumer}::text
      and fence = ${lease.fence}::bigint`)
}
