/**
 * Dead letters of a partition whose retry was requested: delivered between the other events, one at a time, and closed
 * when they are acknowledged, with the effects of the transaction if there is one.
 */

import { readEvent } from '../consumers/dead-letters/replay.ts'
import { close, putBack, reopenAbandoned, type TakenDeadLetter, take } from '../consumers/dead-letters/row.ts'
import type { Held } from '../consumers/row.ts'
import { onAbort } from '../core/abort.ts'
import { isRillflowError } from '../core/errors.ts'
import { openLoop } from '../core/loop.ts'
import type { Executor } from '../database/database.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { type Delivery, deliveryOf, type Settler, settleOnce } from './delivery.ts'

export interface DeadLetterParts {
  readonly log: Log
  readonly lease: Held
  readonly ended: AbortSignal
  executorOf(tx: AnyTransaction): Executor
  /** One is ready, or settled. */
  onChange(): void
}

export interface RetriedDeadLetters {
  /** Whether one is delivered and not settled. */
  readonly isOut: boolean
  /** Requests may be due. */
  look(): void
  /** The one to deliver, if one is ready. */
  take(): Delivery | undefined
}

export function openDeadLetters({ log, lease, ended, executorOf, onChange }: DeadLetterParts): RetriedDeadLetters {
  let ready: { readonly deadLetter: TakenDeadLetter; readonly event: RecordedEvent } | undefined
  let isOut = false
  const loop = openLoop({
    look,
    pollMs: Number.POSITIVE_INFINITY,
    unref: true,
    onFailure(error) {
      const about = { schema: log.schema, consumer: lease.consumer, error }
      if (isRillflowError(error, 'lease_lost')) loop.rest()
      else log.telemetry.log.warn(about, 'Dead letters could not be read.')
    },
  })
  onAbort(ended, () => void loop.stop())

  return {
    get isOut() {
      return isOut
    },
    look: loop.lookSoon,
    take() {
      if (ready === undefined || ended.aborted) return undefined
      const { deadLetter, event } = ready
      ready = undefined
      isOut = true
      return deliveryOf(event, deadLetter.attempts + 1, settlerOf(deadLetter), true)
    },
  }

  async function look(): Promise<number | undefined> {
    if (isOut || ready !== undefined || ended.aborted) return undefined
    await reopenAbandoned(log, lease)
    const { deadLetter, nextInMs } = await take(log, lease)
    if (deadLetter === undefined) return nextInMs === undefined ? undefined : Math.max(10, nextInMs)
    if (!(await prepare(deadLetter))) return 0
    onChange()
    return undefined
  }

  async function prepare(deadLetter: TakenDeadLetter): Promise<boolean> {
    try {
      ready = { deadLetter, event: await readEvent(log, deadLetter) }
      return true
    } catch (error) {
      if (isRillflowError(error) && error.retryable) throw error
      await putBack(log, lease, deadLetter.eventId, error)
      return false
    }
  }

  function settlerOf({ position, eventId }: TakenDeadLetter): Settler {
    const settled = (): void => {
      isOut = false
      onChange()
      loop.lookSoon()
    }
    return settleOnce({
      ...{ log, lease, position, ended },
      async ack(tx) {
        if (tx === undefined) await log.database.transaction(own => close(log, lease, eventId, own))
        // If that is rolled back, the dead letter is found abandoned, and its request still exists.
        else await close(log, lease, eventId, executorOf(tx))
        settled()
      },
      async nack({ reason = 'it was given back' }) {
        await putBack(log, lease, eventId, reason)
        settled()
      },
    })
  }
}
