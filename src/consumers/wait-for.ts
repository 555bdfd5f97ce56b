/**
 * Waits until a consumer has applied a position: how to read your own writes. If it does not reach the position in
 * time, the error says why: nothing runs it, it is paused, it is behind by so many positions, it fails with an error.
 */

import { sleep } from '../core/abort.ts'
import { counted } from '../core/core.ts'
import { type WaitOptions, waitWithin } from '../core/wait.ts'
import { sql } from '../database/sql.ts'
import { checkPosition } from '../events/read/log.ts'
import type { Consumers } from './consumers.ts'
import { readRows } from './row-names.ts'
import { consumerNames } from './schema.ts'
import { type ConsumerStatus, notFound, readGroupStatus } from './status.ts'

export interface WaitForOptions extends WaitOptions {
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
  { group = 'default', ...options }: WaitForOptions = {},
): Promise<void> {
  const { log } = consumers
  log.database.refuseInsideTransaction('waitFor')
  checkPosition('position', position)
  const isDivided = consumers.divided?.names().includes(name) === true
  const isExpected = isDivided || consumers.get(name) !== undefined
  const missing = async (): Promise<string> =>
    whatIsMissing(name, await readGroupStatus(consumers, name, group).catch(() => undefined))
  const what = `The application of position ${position} by "${name}"`
  await waitWithin(options, { call: 'store.consumers.waitFor', what, clock: log.clock, missing }, async signal => {
    for (let waitMs = firstLookMs; ; waitMs = Math.min(waitMs * 1.5, lastLookMs)) {
      const divided = isDivided || !isExpected ? await readRows(log, name, group) : []
      const names = divided.length > 0 ? divided : [name]
      const rows = await log.database.run<{ reached: boolean }>(sql`/* consumers.reached */
        select state = 'inline' or (state = 'active' and checkpoint >= ${position}::bigint) as reached
        from ${consumerNames(log).consumers}
        where name = any(${names}::text[])`)
      if (rows.length === 0 && !isExpected) throw await notFound(consumers, name, undefined)
      if (rows.length > 0 && rows.every(row => row.reached)) return
      await sleep(waitMs, { signal })
    }
  })
}

function whatIsMissing(name: string, status: ConsumerStatus | undefined): string {
  if (status === undefined) return `Nothing has run "${name}" yet: is a runner started, with store.start()?`
  const { isPaused, state, checkpoint, lag, lastError, attempts, lease } = status
  const at = `It is at ${checkpoint}, behind by ${lag}.`
  const error = lastError?.message ?? 'an error that is not known'
  if (isPaused && attempts > 0) return `"${name}" has stopped, because an event fails with: ${error}. ${at}`
  if (isPaused) return `"${name}" is paused. ${at}`
  if (state === 'rebuilding') return `"${name}" is being rebuilt.`
  if (attempts > 0) return `Its next event has failed ${counted(attempts, 'time')}, with: ${error}. ${at}`
  return lease === undefined ? `No runner runs "${name}": is one started, with store.start()? ${at}` : at
}
