/** What becomes of a delivery is said once: the first word stands. */

import { LeaseLost } from '../consumers/errors.ts'
import type { Lease } from '../consumers/row.ts'
import type { Log } from '../events/log.ts'
import type { Settler } from './delivery.ts'
import { AlreadySettled } from './errors.ts'

export interface SettlerParts extends Pick<Settler, 'ack' | 'nack'> {
  readonly log: Log
  readonly lease: Lease
  readonly position: number
  /** Aborts when nothing may be said any more. */
  readonly ended: AbortSignal
}

export function settleOnce({ log, lease, position, ended, ack, nack }: SettlerParts): Settler {
  const { consumer, fence } = lease
  let settled: 'acknowledged' | 'given back' | undefined
  let outcome: Promise<void> = Promise.resolve()

  const say = (as: NonNullable<typeof settled>, work: () => Promise<void>): Promise<void> => {
    if (settled === as) return outcome
    if (settled !== undefined) return Promise.reject(new AlreadySettled({ consumer, position, as: settled }))
    if (ended.aborted) return Promise.reject(new LeaseLost({ consumer, fence }))
    settled = as
    outcome = work().catch(error => {
      settled = undefined
      throw error
    })
    return outcome
  }

  return {
    signal: ended,
    async ack(tx) {
      // Embedded it would wait for the transaction, which waits for it.
      if (tx === undefined) log.database.refuseInsideTransaction('ack')
      return say('acknowledged', () => ack(tx))
    },
    async nack(options) {
      log.database.refuseInsideTransaction('nack')
      return say('given back', () => nack(options))
    },
  }
}
