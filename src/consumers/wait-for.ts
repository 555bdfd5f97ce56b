/**
 * Waits until a consumer has applied a position: how to read your own writes. If it does not reach the position in
 * time, the error says why: nothing runs it, it is paused, it is behind by so many positions, it fails with an error.
 */

import { deadline, sleep } from '../core/abort.ts'
import { isRillflowError, TimedOut } from '../core/errors.ts'
import { sql } from '../database/sql.ts'
import { checkPosition } from '../events/read/log.ts'
import type { Consumers } from './consumers.ts'
import { readRows } from './row-names.ts'
import { consumerNames } from './schema.ts'
import { type ConsumerStatus, notFound, readGroupStatus } from './status.ts'

export interface WaitForOptions {
  /** Default 30 000. */
  timeoutMs?: number | undefined
  signal?: AbortSignal | undefined
  /** The group of a subscription. Default 'default'. */
  group?: string | undefined
}

/** The waits between two looks: batches of other processes send no hint. */
const firstLookMs = 5
const lastLookMs = 100

/** Resolves when the checkpoint is at or beyond the position. An inline projection is there with the append. */
export async function waitForConsumer(
  consumers: Consumers,
  name: string,
  position: number,
  { timeoutMs = 30_000, signal, group = 'default' }: WaitForOptions = {},
): Promise<void> {
  const { log } = consumers
  log.database.refuseInsideTransaction('waitFor')
  checkPosition('position', position)
  const isDivided = consumers.divided?.names().includes(name) === true
  const isExpected = isDivided || consumers.get(name) !== undefined
  const limit = deadline(signal, timeoutMs, { clock: log.clock })
  try {
    for (let waitMs = firstLookMs; ; waitMs = Math.min(waitMs * 1.5, lastLookMs)) {
      const divided = isDivided || !isExpected ? await readRows(log, name, group) : []
      const names = divided.length > 0 ? divided : [name]
      const rows = await log.database.run<{ reached: boolean }>(sql`/* consumers.reached */
        select state = 'inline' or (state = 'active' and checkpoint >= ${position}::bigint) as reached
        from ${consumerNames(log).consumers}
        where name = any(${names}::text[])`)
      if (rows.length === 0 && !isExpected) throw await notFound(consumers, name, undefined)
      if (rows.length > 0 && rows.every(row => row.reached)) return
      await sleep(waitMs, { signal: limit.signal, clock: log.clock })
    }
  } catch (error) {
    if (!isRillflowError(error, 'timed_out')) throw error
    const missing = await readGroupStatus(consumers, name, group).then(whatIsMissing, () => 'nothing has run it yet')
    throw new TimedOut({ what: `"${name}" reaching position ${position} (${missing})`, timeoutMs })
  } finally {
    limit.dispose()
  }
}

function whatIsMissing({ isPaused, state, checkpoint, lag, lastError, attempts, lease }: ConsumerStatus): string {
  const at = `it is at ${checkpoint}, behind by ${lag}`
  if (isPaused && attempts > 0) return `it has stopped, because an event failed with ${lastError?.message}`
  if (isPaused) return `it is paused; ${at}`
  if (state === 'rebuilding') return 'it is being rebuilt'
  if (attempts > 0) return `the next event has failed ${attempts} times, with ${lastError?.message}; ${at}`
  return lease === undefined ? `nothing runs it; ${at}` : at
}
