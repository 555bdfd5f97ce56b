/**
 * Changing the lifecycle of a projection while others append.
 *
 *     async ──take over, catch up ──► the barrier ─► the last events ─► active as inline ─► commit ──► inline
 *     inline ──► the barrier ─► retired, checkpoint at the head ─► commit ──► async
 *
 * Behind the barrier no append is under way and the log is settled up to its head, so each event is applied either by the
 * consumer or with its append, never by both and never by none. Writers merely wait for that moment.
 */

import { ensureConsumer } from '../consumers/consumer.ts'
import type { Consumers } from '../consumers/consumers.ts'
import { LeaseLost } from '../consumers/errors.ts'
import { move, takeOver } from '../consumers/operator.ts'
import { release } from '../consumers/row.ts'
import { InvalidOption } from '../core/errors.ts'
import { sleep } from '../core/lifecycle.ts'
import { type Backoff, delay } from '../core/retry.ts'
import type { Transaction } from '../database/database.ts'
import { activateInline, holdInlineBarrier, listInline, retireInline } from '../events/inline/barrier.ts'
import type { InlineProjection } from '../events/inline/registry.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import { projectionConsumer } from './consume.ts'
import { RebuildRunning } from './errors.ts'
import { checkLifecycle, hasFurtherFilter, type Projection } from './projection.ts'
import { beginBuild, catchUp, isLocked, stateOf } from './rebuild/build.ts'
import type { Prepare } from './rebuild/prepare.ts'
import { applyTail, TailFailed } from './rebuild/switch.ts'
import { tableNames } from './table.ts'

const limits = { timeoutMs: 30_000, lockTimeoutMs: 1_000 }
const waits: Backoff = { baseMs: 20, factor: 2, maxMs: 1_000, jitter: 0.5 }
const mostTries = 50

/** The code of a projection, to be run with appends once the database says so. Undefined if its filter forbids that. */
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
      await log.database.transaction(async tx => {
        await holdInlineBarrier(log, tx)
        const tail = await applyTail({ log, projection, shadow: consumer, lease }, tx)
        await refuseUnsettled(log, tx, tail.position)
        await activateInline(log, tx, { name, version, types: filter.types })
        await moveTo(log, tx, name, 'inline', tail.position)
      }, limits)
      return
    } catch (error) {
      await release(log, [lease]).catch(() => {})
      if (!isPassing(error) || attempt === mostTries) throw error instanceof TailFailed ? (error.cause ?? error) : error
      await sleep(delay(waits, attempt))
    }
  }
}

/** It may want other types by now. Writers are made to wait only if it does. */
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

export async function makeAsync(consumers: Consumers, name: string): Promise<void> {
  const { log } = consumers
  for (let attempt = 1; ; attempt++) {
    try {
      await log.database.transaction(async tx => {
        const wasInline = await retireInline(log, tx, name)
        if (!wasInline) return
        const { settled } = await settle(log, tx)
        await refuseUnsettled(log, tx, settled)
        await moveTo(log, tx, name, 'active', settled)
      }, limits)
      return
    } catch (error) {
      if (!isPassing(error) || attempt === mostTries) throw error
      await sleep(delay(waits, attempt))
    }
  }
}

function isPassing(error: unknown): boolean {
  return error instanceof TailFailed || isLocked(error) || error instanceof LeaseLost
}

async function refuseUnsettled(log: Log, tx: Transaction, reached: number): Promise<void> {
  const { head } = await settle(log, tx)
  if (reached < head) throw new TailFailed('the log is not settled up to its head')
}

async function moveTo(
  log: Log,
  tx: Transaction,
  name: string,
  state: 'inline' | 'active',
  position: number,
): Promise<void> {
  await move(log, name, { state, checkpoint: position }, tx)
}
