/**
 * An event that is delivered to a program: its fields, and the calls that report its outcome. Those are on the
 * prototype, so that a delivery prints, compares and copies like the event.
 *
 *     out ──ack──► acknowledged        out ──nack──► given back: delivered again, or ended by the policy
 *
 * The first outcome counts, and a different one afterwards is refused (`AlreadySettled`).
 */
import { LeaseLost } from '../consumers/errors.ts'
import type { Held } from '../consumers/row.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { AlreadySettled } from './errors.ts'

/**
 * An event that is delivered, to be acknowledged or returned.
 *
 * @example
 * ```ts
 * const mail = async (event: Delivery) => {
 *   if (event.deliveries > 3) await event.nack({ delayMs: 60_000 })
 * }
 * ```
 */
export type Delivery<M extends EventMap = UntypedEvents> = RecordedEvent<M> & Settling

export interface Settling {
  /** How often it has been delivered, this time included. A crash before it was given back is not counted. */
  readonly deliveries: number
  /** True for the retry of a dead letter: newer events were delivered before. */
  readonly isReplay: boolean
  /** Aborts when the lease is lost or the subscription stops: the event will be delivered to another runner. */
  readonly signal: AbortSignal
  /**
   * It is done; resolves when that is stored. With `tx` it is stored with that transaction, together with its effects:
   * if that is rolled back, the event is delivered again.
   */
  ack(tx?: AnyTransaction): Promise<void>
  /** Gives it back: it is delivered again after a while, or ends as the policy says. */
  nack(options?: NackOptions): Promise<void>
}

export interface NackOptions {
  /** How long it waits. Default: the policy's backoff. */
  delayMs?: number | undefined
  /** Why; an error or a sentence. Stored with the dead letter. */
  reason?: unknown
}

/** Stores the outcome of one delivery. */
export interface Settler {
  readonly signal: AbortSignal
  ack(tx: AnyTransaction | undefined): Promise<void>
  nack(options: NackOptions): Promise<void>
}

export interface SettlerParts extends Pick<Settler, 'ack' | 'nack'> {
  readonly log: Log
  readonly lease: Held
  readonly position: number
  /** Aborts when no outcome can be stored any longer. */
  readonly ended: AbortSignal
}

/** A settler that stores the first outcome, and refuses another one. */
export function settleOnce({ log, lease, position, ended, ack, nack }: SettlerParts): Settler {
  const { consumer, fence } = lease
  let settled: 'acknowledged' | 'given back' | undefined
  let outcome: Promise<void> = Promise.resolve()

  const settle = (as: NonNullable<typeof settled>, work: () => Promise<void>): Promise<void> => {
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
      return settle('acknowledged', () => ack(tx))
    },
    async nack(options) {
      log.database.refuseInsideTransaction('nack')
      return settle('given back', () => nack(options))
    },
  }
}

export function deliveryOf(event: RecordedEvent, deliveries: number, settler: Settler, isReplay = false): Delivery {
  return new Delivered(event, deliveries, settler, isReplay) as unknown as Delivery
}

class Delivered {
  declare readonly position: number
  readonly #deliveries: number
  readonly #isReplay: boolean
  readonly #settler: Settler

  constructor(event: RecordedEvent, deliveries: number, settler: Settler, isReplay: boolean) {
    Object.assign(this, event)
    this.#deliveries = deliveries
    this.#isReplay = isReplay
    this.#settler = settler
  }

  get deliveries(): number {
    return this.#deliveries
  }

  get isReplay(): boolean {
    return this.#isReplay
  }

  get signal(): AbortSignal {
    return this.#settler.signal
  }

  ack(tx?: AnyTransaction): Promise<void> {
    return this.#settler.ack(tx)
  }

  nack(options: NackOptions = {}): Promise<void> {
    return this.#settler.nack(options)
  }
}
