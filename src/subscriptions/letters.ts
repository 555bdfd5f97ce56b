/**
 * Dead letters of a partition that somebody asked to have tried again: delivered beside the other events, one at a time,
 * and closed when they are acknowledged, with the effects of the transaction if there is one.
 */

import { readEvent } from '../consumers/dead-letters/replay.ts'
import { close, putBack, reopenAbandoned, type TakenDeadLetter, take } from '../consumers/dead-letters/row.ts'
import type { Hold } from '../consumers/runners/host.ts'
import { isRillflowError } from '../core/errors.ts'
import { onAbort } from '../core/lifecycle.ts'
import { openLoop } from '../core/loop.ts'
import type { Executor } from '../database/database.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { type Delivery, deliveryOf } from './delivery.ts'
import { settleOnce } from './settler.ts'

export interface LetterParts {
  readonly log: Log
  readonly hold: Pick<Hold, 'lease'>
  readonly ended: AbortSignal
  executorOf(tx: AnyTransaction): Executor
  /** One is ready, or done with. */
  onChange(): void
}

export interface Letters {
  /** Whether one is in the hands of a consumer. */
  readonly isOut: boolean
  /** Requests may be due. */
  look(): void
  /** The letter to deliver, if one is ready. */
  take(): Delivery | undefined
}

export function openLetters({ log, hold, ended, executorOf, onChange }: LetterParts): Letters {
  let ready: { letter: TakenDeadLetter; event: RecordedEvent } | undefined
  let isOut = false
  const loop = openLoop({
    look: lookUp,
    pollMs: Number.POSITIVE_INFINITY,
    clock: log.clock,
    unref: true,
    onFailure(error) {
      if (isRillflowError(error, 'lease_lost')) loop.rest()
      else log.telemetry.log.warn({ ...about(), error }, 'no dead letter was read')
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
      const { letter, event } = ready
      ready = undefined
      isOut = true
      return deliveryOf(event, letter.attempts + 1, settlerOf(letter), true)
    },
  }

  async function lookUp(): Promise<number | undefined> {
    if (isOut || ready !== undefined || ended.aborted) return undefined
    await reopenAbandoned(log, hold.lease)
    const { deadLetter: letter, nextInMs } = await take(log, hold.lease)
    if (letter === undefined) return nextInMs === undefined ? undefined : Math.max(10, nextInMs)
    if (!(await prepare(letter))) return 0
    onChange()
    return undefined
  }

  async function prepare(letter: TakenDeadLetter): Promise<boolean> {
    try {
      ready = { letter, event: await readEvent(log, letter) }
      return true
    } catch (error) {
      if (isRillflowError(error) && error.retryable) throw error
      await putBack(log, hold.lease, letter.eventId, error)
      return false
    }
  }

  function settlerOf(letter: TakenDeadLetter): ReturnType<typeof settleOnce> {
    const over = (): void => {
      isOut = false
      onChange()
      loop.lookSoon()
    }
    return settleOnce({
      ...{ log, lease: hold.lease, position: letter.position, ended },
      async ack(tx) {
        if (tx === undefined) await log.database.transaction(own => close(log, hold.lease, letter.eventId, own))
        // If it is rolled back the letter is found abandoned, and its request still there.
        else await close(log, hold.lease, letter.eventId, executorOf(tx))
        over()
      },
      async nack({ reason = 'it was given back' }) {
        await putBack(log, hold.lease, letter.eventId, reason)
        over()
      },
    })
  }

  function about(): object {
    return { schema: log.schema, consumer: hold.lease.consumer }
  }
}
