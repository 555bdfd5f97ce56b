/**
 * Consumers: all that follows the log, on one protocol. Projections, subscriptions and processors are thin uses of it,
 * and nothing here knows which of them it runs.
 *
 *     daemon ─► host ─► look · assign · take ─► [consumers: lease · fence · checkpoint]
 *                          │
 *                          └─► follow: feed ─► batch ─► handler + checkpoint, one transaction
 *                                                └─ failed ─► policy ─► retry · skip · stop · dead letter
 *
 *     free ──take──► held ──renewed──► held ──given back, or expired──► free
 *                      └──taken by another, reset, replaced──► lost: whatever it still writes is refused by its fence
 *
 * Guarantees:
 * - At-least-once delivery; effectively once for effects in the transaction handed to the handler, because they commit
 *   with the checkpoint or not at all.
 * - One holder at a time decides. A holder that was stopped, or cut off, and comes back changes nothing: every write on
 *   behalf of a consumer matches the fence of its lease.
 * - Events come in the order of their positions. A failing one is tried again after a wait, while its consumer waits; then
 *   its policy decides. Consumers do not wait for each other.
 * - When a process dies, another takes over within the time of a lease; when one joins, it gets its share.
 *
 * What can fail: a database that is away is waited for. A checkpoint beyond the head of the log (`CheckpointBeyondHead`)
 * holds the consumer up until it is reset. A handler that does not come back in time is rolled back (`HandlerTimeout`).
 */

import { DuplicateConsumer, InvalidName } from '../core/errors.ts'
import { nearestName } from '../core/nearest.ts'
import type { Log } from '../events/log.ts'
import type { Wake } from '../events/order/wake.ts'
import type { LogWatch } from '../events/order/watch.ts'
import type { Consumer } from './consumer.ts'
import { ConsumerNotFound } from './errors.ts'
import { type Feed, openFeed } from './run/feed.ts'

/** The consumers that this store has code for. */
export interface Consumers {
  readonly log: Log
  readonly wake: Wake
  readonly watch: LogWatch
  readonly feed: Feed
  /** Refuses a name that is taken or reserved. The function returned removes it again. */
  register(consumer: Consumer): () => void
  /** Names that begin so belong to another part: dead letters are kept under them. */
  reserve(prefix: string): void
  get(name: string): Consumer | undefined
  /** The same, or `ConsumerNotFound`. */
  find(name: string): Consumer
  list(): readonly Consumer[]
  /** Calls back after each change of the list. */
  onChange(hear: () => void): () => void
}

export function openConsumers(parts: { readonly log: Log; readonly wake: Wake; readonly watch: LogWatch }): Consumers {
  const registered = new Map<string, Consumer>()
  const reserved: string[] = []
  const hearers = new Set<() => void>()
  const tell = (): void => {
    for (const hear of [...hearers]) hear()
  }
  return {
    ...parts,
    feed: openFeed(parts.log),
    register(consumer) {
      const prefix = reserved.find(each => consumer.name.startsWith(each))
      if (prefix !== undefined)
        throw new InvalidName({
          what: 'Consumer',
          given: consumer.name,
          reason: `begins with the reserved "${prefix}"`,
        })
      if (registered.has(consumer.name)) throw new DuplicateConsumer({ consumer: consumer.name })
      registered.set(consumer.name, consumer)
      tell()
      return () => {
        if (registered.get(consumer.name) !== consumer) return
        registered.delete(consumer.name)
        tell()
      }
    },
    reserve(prefix) {
      reserved.push(prefix)
    },
    get: name => registered.get(name),
    find(name) {
      const found = registered.get(name)
      if (found === undefined)
        throw new ConsumerNotFound({ consumer: name, nearest: nearestName(name, registered.keys()) })
      return found
    },
    list: () => [...registered.values()],
    onChange(hear) {
      hearers.add(hear)
      return () => hearers.delete(hear)
    },
  }
}
