/**
 * Dead letters of a partition that somebody asked to have tried again: delivered beside the other events, one at a time,
 * and closed when they are acknowledged, with the effects of the transaction if there is one.
 */
import type { Hold } from '../consumers/host.ts'
import { type Letter, markReplayed, putBack, readEvent, reopenAbandoned, takeNext } from '../consumers/replay.ts'
import { isRillflowError } from '../core/errors.ts'
import type { Executor } from '../database/database.ts'
import { type AnyTransaction, runOutside } from '../database/transaction.ts'
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
  let ready: { letter: Letter; event: RecordedEvent } | undefined
  let isOut = false
  let isLooking = false
  let isDue = false

  const look = (): void => {
    isDue = true
    if (isLooking || isOut || ready !== undefined || ended.aborted) return
    isLooking = true
    void runOutside(lookUp)
  }

  return {
    get isOut() {
      return isOut
    },
    look,
    take() {
      if (ready === undefined || ended.aborted) return undefined
      const { letter, event } = ready
      ready = undefined
      isOut = true
      return deliveryOf(event, letter.attempts + 1, settlerOf(letter), true)
    },
  }

  async function lookUp(): Promise<void> {
    try {
      while (isDue && ready === undefined && !ended.aborted) {
        isDue = false
        await reopenAbandoned(log, hold)
        const { letter, nextInMs } = await takeNext(log, hold)
        if (letter !== undefined) await prepare(letter)
        else if (nextInMs !== undefined) log.clock.setTimeout(look, Math.max(10, nextInMs)).unref?.()
      }
    } catch (error) {
      // Asked again with the next look of the host.
      if (!isRillflowError(error, 'lease_lost'))
        log.telemetry.log.warn({ ...about(), error }, 'no dead letter was read')
    } finally {
      isLooking = false
    }
    if (ready !== undefined) onChange()
  }

  async function prepare(letter: Letter): Promise<void> {
    try {
      ready = { letter, event: await readEvent(log, letter) }
    } catch (error) {
      if (isRillflowError(error) && error.retryable) throw error
      await putBack(log, hold, letter, error)
      isDue = true
    }
  }

  function settlerOf(letter: Letter): ReturnType<typeof settleOnce> {
    const over = (): void => {
      isOut = false
      onChange()
      look()
    }
    return settleOnce({
      ...{ log, lease: hold.lease, position: letter.position, ended },
      async ack(tx) {
        if (tx === undefined) await log.database.transaction(own => markReplayed(log, own, hold, letter))
        // If it is rolled back the letter is found abandoned, and its request still there.
        else await markReplayed(log, executorOf(tx), hold, letter)
        over()
      },
      async nack({ reason = 'it was given back' }) {
        await putBack(log, hold, letter, reason)
        over()
      },
    })
  }

  function about(): object {
    return { schema: log.schema, consumer: hold.lease.consumer }
  }
}
