/** Waiting until consumers have applied what was appended: how to read one's own writes. */

import { deadline, sleep } from '../core/lifecycle.ts'
import { sql } from '../database/sql.ts'
import { checkPosition } from '../events/read/log.ts'
import type { Consumers } from './consumers.ts'
import { notFound } from './operator.ts'
import { consumerNames } from './schema.ts'

export interface WaitForOptions {
  /** Default 30 000. */
  timeoutMs?: number | undefined
  signal?: AbortSignal | undefined
}

/** Looks at once after each of our own batches, and else so often; others' batches wake nobody here. */
const firstLookMs = 5
const lastLookMs = 100

/** Resolves when the consumer's checkpoint is at or beyond the position. An inline one is as soon as the append is. */
export async function waitForConsumer(
  consumers: Consumers,
  name: string,
  position: number,
  { timeoutMs = 30_000, signal }: WaitForOptions = {},
): Promise<void> {
  const { log } = consumers
  log.database.refuseInsideTransaction('waitFor')
  checkPosition('position', position)
  const what = `Position ${position} in the checkpoint of "${name}"`
  const limit = deadline(signal, timeoutMs, { what, clock: log.clock })
  try {
    for (let waitMs = firstLookMs; ; waitMs = Math.min(waitMs * 1.5, lastLookMs)) {
      const [row] = await log.database.run<{ reached: boolean }>(sql`/* consumers.reached */
        select state = 'inline' or (state = 'active' and checkpoint >= ${position}::bigint) as reached
        from ${consumerNames(log).consumers}
        where name = ${name}::text`)
      if (row === undefined && consumers.get(name) === undefined) throw await notFound(log, name)
      if (row?.reached === true) return
      await sleep(waitMs, { signal: limit.signal, clock: log.clock })
    }
  } finally {
    limit.dispose()
  }
}
