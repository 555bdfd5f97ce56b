/**
 * Consumers: everything that follows the log, on one protocol. Projections, subscriptions, processors, snapshotters and
 * the dispatcher of workflows are thin uses of it, and nothing here knows which of them it runs.
 *
 *     store.start() ─► runners/ ─► leases: look · assign · take ─► [consumers: lease · fence · checkpoint]
 *                                     │
 *                                     └─► run/ feed ─► batch ─► handler + checkpoint, one transaction
 *                                                        └─ failed ─► policy ─► retry · skip · stop · dead-letters/
 *
 *     free ──take──► held ──renewed──► held ──released, or expired──► free
 *                      └──taken by another, reset, replaced──► lost: its fence refuses every further write
 *
 * Guarantees:
 * - At-least-once delivery; effectively once for effects in the transaction given to the handler, because they commit
 *   with the checkpoint or not at all.
 * - One holder at a time decides. A holder that was suspended, or cut off, and comes back changes nothing: every write on
 *   behalf of a consumer matches the fence of its lease.
 * - Events come in the order of their positions. A failing one is tried again after a wait, while its consumer waits; then
 *   its policy decides. Consumers do not wait for each other.
 * - When a process dies, another takes over within the time of a lease; when one joins, it gets its share.
 *
 * What can fail: a database that is away is waited for. A checkpoint beyond the head of the log
 * (`CheckpointBeyondHead`) stops the consumer until it is reset. A handler that does not return in time is rolled back
 * (`ConsumerTimeout`).
 */

import { DuplicateConsumer, InvalidName } from '../core/errors.ts'
import { nearestName } from '../core/name.ts'
import type { Executor } from '../database/database.ts'
import type { Log } from '../events/log.ts'
import type { Wake } from '../events/order/wake.ts'
import type { LogWatch } from '../events/order/watch.ts'
import { type Consumer, ensureConsumer } from './consumer.ts'
import { ConsumerNotFound } from './errors.ts'
import { groupOf } from './row-names.ts'
import { type Feed, openFeed } from './run/feed.ts'
import type { RunOptions, RunResult } from './run/run.ts'

/** The consumers that this store has code for. */
export interface Consumers {
  readonly log: Log
  readonly wake: Wake
  readonly watch: LogWatch
  readonly feed: Feed
  /** Refuses a name that is taken or reserved. The function returned removes it again. */
  register(consumer: Consumer): () => void
  /** Names that begin so belong to another part: its dead letters are stored under them. */
  reserve(prefix: string): void
  /** Consumers with several rows each, of a kind of their own. */
  divide(divided: DividedConsumers): void
  readonly divided: DividedConsumers | undefined
  get(name: string): Consumer | undefined
  /** The same, or `ConsumerNotFound`. */
  find(name: string): Consumer
  list(): readonly Consumer[]
  /** Whether this store has the code for a row. */
  hasCodeFor(row: { readonly name: string; readonly kind: string }): boolean
  /** Stores the checkpoint of each registered consumer that has none: 'now' is from then on. */
  store(): Promise<void>
  /** Calls back after each change of the list. */
  onChange(listener: () => void): () => void
}

/**
 * The differences of consumers that have groups, and a row for each partition of a group (see `row-names.ts`). The
 * administration treats such a group as one consumer.
 */
export interface DividedConsumers {
  /** Those that this store has code for. */
  names(): readonly string[]
  /** Called in the transaction that moves the checkpoints of these rows, or deletes them, before it does. */
  forget(rows: readonly string[], tx: Executor): Promise<void>
  /** Delivers the settled events, and returns their number. */
  runUntilIdle(name: string, options: RunOptions): Promise<RunResult>
}

export function openConsumers(parts: { readonly log: Log; readonly wake: Wake; readonly watch: LogWatch }): Consumers {
  const registered = new Map<string, Consumer>()
  const reserved: string[] = []
  const listeners = new Set<() => void>()
  let divided: DividedConsumers | undefined
  const changed = (): void => {
    for (const listener of [...listeners]) listener()
  }
  return {
    ...parts,
    feed: openFeed(parts.log, parts.watch.reads),
    register(consumer) {
      const { name } = consumer
      const prefix = reserved.find(each => name.startsWith(each))
      if (prefix !== undefined)
        throw new InvalidName({ what: 'Consumer', given: name, reason: `begins with the reserved "${prefix}"` })
      if (registered.has(name)) throw new DuplicateConsumer({ consumer: name })
      registered.set(name, consumer)
      changed()
      return () => {
        if (registered.get(name) !== consumer) return
        registered.delete(name)
        changed()
      }
    },
    reserve(prefix) {
      reserved.push(prefix)
    },
    divide(given) {
      divided = given
    },
    get divided() {
      return divided
    },
    get: name => registered.get(name),
    find(name) {
      const found = registered.get(name)
      if (found === undefined)
        throw new ConsumerNotFound({ consumer: name, nearest: nearestName(name, registered.keys()) })
      return found
    },
    list: () => [...registered.values()],
    hasCodeFor: ({ name, kind }) =>
      registered.has(name) || (kind === 'subscription' && divided?.names().includes(groupOf(name).name) === true),
    async store() {
      // One that is refused keeps no other from its beginning.
      let failure: { readonly error: unknown } | undefined
      for (const consumer of registered.values())
        if (consumer.from !== 'start')
          await ensureConsumer(parts.log, consumer).catch((error: unknown) => {
            failure ??= { error }
          })
      if (failure !== undefined) throw failure.error
    },
    onChange(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
}
