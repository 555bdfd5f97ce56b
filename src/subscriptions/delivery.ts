/**
 * An event in the hands of a consumer: its fields, and the means to say what became of it. Those are on the prototype, so
 * that a delivery prints, compares and copies like the event.
 */
import type { AnyTransaction } from '../database/transaction.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../events/definition.ts'

export type Delivery<M extends EventMap = UntypedEvents> = RecordedEvent<M> & Settling

export interface Settling {
  /** How often it has been delivered, this time included. A crash before it was given back is not counted. */
  readonly deliveries: number
  /** True for a dead letter that is tried again: newer events were delivered before. */
  readonly isReplay: boolean
  /** Aborts when the lease is lost or the subscription stopped: the event will be delivered to somebody else. */
  readonly signal: AbortSignal
  /**
   * Done with it; resolves when that is stored. With `tx` it is stored with that transaction, together with its effects:
   * if it is rolled back, the event is delivered again.
   */
  ack(tx?: AnyTransaction): Promise<void>
  /** Gives it back, to be delivered again after a while, or to end as the policy says. */
  nack(options?: NackOptions): Promise<void>
}

export interface NackOptions {
  /** How long it waits. Default: the policy's backoff. */
  delayMs?: number | undefined
  /** Why; an error or a sentence. Kept with the dead letter. */
  reason?: unknown
}

export interface Settler {
  readonly signal: AbortSignal
  ack(tx: AnyTransaction | undefined): Promise<void>
  nack(options: NackOptions): Promise<void>
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
