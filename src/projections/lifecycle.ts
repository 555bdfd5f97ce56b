/**
 * Changing the lifecycle of a projection while events are appended.
 *
 *     async ──► take over ─► catch up ─► barrier ─► the last events ─► active as inline ─► commit ──► inline
 *                                           ▲ there are more: commit ◄──┘
 *     inline ──► barrier ─► retired, checkpoint at the head ─► commit ──► async
 *
 * Guarantees:
 * - Behind the barrier no append is running and the log is settled up to its head, so each event is applied either by the
 *   consumer or with its append, never by both and never by none. Writers wait for that moment only.
 * - It ends, also if events are appended faster than they are applied: then the last ones are applied behind the barrier, in
 *   turns between which writers continue.
 * - A projection that is inline already only gets the version and the types of its code, and writers wait only if they differ.
 *
 * What can fail: the locks are not granted, or the last events fail: it is tried again, up to 50 times. A projection that is
 * paused, or being rebuilt, is refused.
 */

import { ensureConsumer } from '../consumers/consumer.ts'
import type { Consumers } from '../consumers/consumers.ts'
import { LeaseLost } from '../consumers/errors.ts'
import { move, takeOver } from '../consumers/operator.ts'
import { release, renew } from '../consumers/row.ts'
import { sleep } from '../core/abort.ts'
import { InvalidOption } from '../core/errors.ts'
import { type Backoff, delay } from '../core/retry.ts'
import type { Transaction } from '../database/database.ts'
import { activateInline, holdInlineBarrier, listInline, retireInline } from '../events/inline/barrier.ts'
import type { InlineProjection } from '../events/inline/registry.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import { type Prepare, projectionConsumer } from './consumer.ts'
import { RebuildRunning } from './errors.ts'
import { checkLifecycle, hasFurtherFilter, type Projection } from './projection.ts'
import { beginBuild, catchUp, isLocked, stateOf } from './rebuild/build.ts'
import { applyTail, TailFailed, turnOf } from './rebuild/switch.ts'
import { tableNames } from './table.ts'

const limits = { timeoutMs: 30_000, lockTimeoutMs: 1_000 }
const backoff: Backoff = { baseMs: 20, factor: 2, maxMs: 1_000, jitter: 0.5 }
const maxTries = 50

/** The code of a projection as appends run it, once the database has it active. Undefined if its filter forbids that. */
export function inlineForm(log: Log, projection: Projection): InlineProjection | undefined {
  const { name, version, filter, options } = projection
  const { types } = filter
  if (hasFurtherFilter(filter)) return undefined
  const tables = tableNames(log.schema, projection)
  const wanted = types === undefined ? undefined : new Set(types)
  return {
    name,
    version,
    types,
    timeoutMs: options.timeoutMs,
    async apply(given, tx, signal) {
      const events = wanted === undefined ? given : given.filter(event => wanted.has(event.type))
      if (events.length === 0) return
      const ctx = { tx, signal, tables, attempt: 1, isReplay: false, isRebuild: false, isInline: true, at: () => {} }
      await projection.apply(events, ctx)
    },
  }
}

// [barrier-7]
export async function makeInline(consumers: Consumers, projection: Projection, prepare: Prepare): Promise<void> {
  const { log } = consumers
  const { name, version, filter } = projection
  checkLifecycle({ ...projection, lifecycle: 'inline' })
  const consumer = projectionConsumer(log, projection, prepare)
  await prepare(projection)
  await ensureConsumer(log, consumer)
  for (let attempt = 1; ; attempt++) {
    const state = await stateOf(log, name)
    if (state === 'emptying' || state === 'rebuilding') throw new RebuildRunning({ projection: name })
    if (state === 'inline') return renewInline(log, projection)
    const lease = await takeOver(log, name, consumer.leaseMs)
    if (lease === undefined) {
      const reason = `Projection "${name}" is paused, so it cannot become inline. Resume it first.`
      throw new InvalidOption({ option: 'lifecycle', reason })
    }
    try {
      const build = { consumers, consumer, lease, from: lease, signal: undefined, onProgress: undefined }
      await catchUp(beginBuild(build))
      for (let turn = 1; ; turn++) {
        await renew(log, lease, consumer.leaseMs)
        const isDone = await log.database.transaction(async tx => {
          await holdInlineBarrier(log, tx)
          const parts = { log, projection, shadow: consumer, lease, goal: undefined, turnMs: turnOf(turn) }
          const { position, isWhole } = await applyTail(parts, tx)
          if (!isWhole) return false
          await refuseUnsettled(log, tx, position)
          await activateInline(log, tx, { name, version, types: filter.types })
          await move(log, name, { state: 'inline', checkpoint: position }, tx)
          return true
        }, limits)
        if (isDone) return
      }
    } catch (error) {
      await release(log, [lease]).catch(() => {})
      if (!canTryAgain(error) || attempt === maxTries)
        throw error instanceof TailFailed ? (error.cause ?? error) : error
      await sleep(delay(backoff, attempt))
    }
  }
}

/** Gives an inline projection the version and the types of its code. */
async function renewInline(log: Log, { name, version, filter }: Projection): Promise<void> {
  const wanted =
    filter.types === undefined ? undefined : new Set(filter.types.flatMap(type => log.upcasters.sourcesOf(type)))
  const active = (await listInline(log)).find(each => each.name === name)
  const isSame =
    active?.version === version &&
    active.types?.length === wanted?.size &&
    (active.types ?? []).every(type => wanted?.has(type) === true)
  if (!isSame)
    await log.database.transaction(tx => activateInline(log, tx, { name, version, types: filter.types }), limits)
}

// [barrier-8]
export async function makeAsync(consumers: Consumers, name: string): Promise<void> {
  const { log } = consumers
  for (let attempt = 1; ; attempt++) {
    try {
      await log.database.transaction(async tx => {
        const wasInline = await retireInline(log, tx, name)
        if (!wasInline) return
        const { settled } = await settle(log, tx)
        await refuseUnsettled(log, tx, settled)
        await move(log, name, { state: 'active', checkpoint: settled }, tx)
      }, limits)
      return
    } catch (error) {
      if (!canTryAgain(error) || attempt === maxTries) throw error
      await sleep(delay(backoff, attempt))
    }
  }
}

function canTryAgain(error: unknown): boolean {
  return error instanceof TailFailed || isLocked(error) || error instanceof LeaseLost
}

async function refuseUnsettled(log: Log, tx: Transaction, reached: number): Promise<void> {
  const { head } = await settle(log, tx)
  if (reached < head) throw new TailFailed('the log is not settled up to its head')
}
