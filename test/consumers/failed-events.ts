/** A shop whose mailer has dead letters: events it failed on, and a lease to work under. */
import { type Consumer, type ConsumerOptions, consumer, ensureConsumer } from '../../src/consumers/consumer.ts'
import { type DeadLetters, openDeadLetters } from '../../src/consumers/dead-letters/dead-letters.ts'
import { record } from '../../src/consumers/dead-letters/row.ts'
import { type Lease, newOwner, take as takeLease } from '../../src/consumers/row.ts'
import type { HeldLease } from '../../src/consumers/runners/runnable.ts'
import type { NewEvent, RecordedEvent } from '../../src/events/definition.ts'
import type { Log } from '../../src/events/log.ts'
import { openConsumerParts } from '../support/consumer-parts.ts'
import { openShop, type Shop, type ShopMap } from '../support/shop.ts'

export interface FailedEvents extends Shop {
  readonly log: Log
  readonly deadLetters: DeadLetters
  /** Appends the event and records that a consumer, by default the mailer, failed on it. */
  fail(
    stream: string,
    event: NewEvent<ShopMap>,
    options?: { consumer?: string; error?: unknown },
  ): Promise<RecordedEvent>
  /** Records it once more. */
  failAgain(event: RecordedEvent, options?: { consumer?: string; error?: unknown; attempts?: number }): Promise<void>
  /** Takes the lease; a former one of ours expires. */
  hold(options?: { consumer?: string; leaseMs?: number }): Promise<HeldLease & { drained: AbortController }>
}

export async function openFailedEvents(): Promise<FailedEvents> {
  const shop = await openShop()
  const { log } = openConsumerParts(shop)
  const failAgain: FailedEvents['failAgain'] = (event, options = {}) => {
    const { consumer: name = 'mailer', attempts = 1 } = options
    const error = 'error' in options ? options.error : new Error('declined')
    return shop.database.transaction(tx => record(log, { consumer: name, fence: 1 }, { event, error, attempts }, tx))
  }
  return {
    ...shop,
    log,
    deadLetters: openDeadLetters({ log }),
    failAgain,
    async fail(stream, event, options) {
      const { eventIds } = await shop.store.events.append(stream, event)
      const recorded = (await shop.store.events.get(eventIds[0]!))!
      await failAgain(recorded, options)
      return recorded
    },
    async hold({ consumer: name = 'mailer', leaseMs = 30_000 } = {}) {
      await ensureConsumer(log, { name, kind: 'processor', from: 'start' })
      await shop.query(`update ~consumers set lease_until = now() - interval '1 second' where name = $1`, [name])
      const lease = (await takeLease(log, name, newOwner(log), leaseMs)) as Lease
      const drained = new AbortController()
      const rest = { onRequest: () => () => {}, limited: <T>(work: () => Promise<T>) => work() }
      return { lease, drain: drained.signal, lost: new AbortController().signal, ...rest, drained }
    },
  }
}

export function mailer(handle: Consumer['handle'], options: ConsumerOptions = {}): Consumer {
  return consumer({ name: 'mailer', kind: 'processor', filter: {}, handle }, options)
}
