/**
 * The parts of a store that run consumers, without a store around them.
 *
 *     const { register, daemon } = openConsumerParts(shop)
 *
 * Two calls on one shop act like two processes on one database.
 */
import { onTestFinished } from 'vitest'
import { type Consumer, type ConsumerOptions, consumer } from '../../src/consumers/consumer.ts'
import { type Consumers, openConsumers } from '../../src/consumers/consumers.ts'
import { openDaemons } from '../../src/consumers/runners/daemon.ts'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { uuidv7Ids } from '../../src/core/id.ts'
import type { Database, Transaction } from '../../src/database/database.ts'
import type { RecordedEvent } from '../../src/events/definition.ts'
import { inlineRegistry } from '../../src/events/inline/registry.ts'
import { type Log, logNames } from '../../src/events/log.ts'
import { openWake } from '../../src/events/order/wake.ts'
import { watchLog } from '../../src/events/order/watch.ts'
import { type Upcaster, upcasters } from '../../src/events/read/upcast.ts'
import { type Logger, openTelemetry } from '../../src/telemetry/telemetry.ts'
import type { Shop } from './shop.ts'

export interface ConsumerParts extends Consumers {
  daemon: ReturnType<typeof openDaemons>['daemon']
}

export interface ConsumerPartsOptions {
  readonly pollMs?: number
  readonly upcasters?: readonly Upcaster[]
  readonly logger?: Logger
  readonly database?: Database
  readonly clock?: Clock
}

export function openConsumerParts(shop: Shop, options: ConsumerPartsOptions = {}): ConsumerParts {
  const log = logOf(shop, options)
  const wake = openWake(log)
  const watch = watchLog(log, wake, options.pollMs ?? 50)
  const consumers = openConsumers({ log, wake, watch })
  const daemons = openDaemons(consumers)
  onTestFinished(async () => {
    await daemons.stopAll()
    watch.close(new Error('the test is over'))
    await wake.close()
  })
  return { ...consumers, daemon: daemons.daemon }
}

export function logOf({ database, schema }: Shop, options: ConsumerPartsOptions = {}): Log {
  return {
    database: options.database ?? database,
    schema,
    names: logNames(schema),
    channel: 'rillflow_events',
    clock: options.clock ?? systemClock,
    ids: uuidv7Ids({ clock: systemClock }),
    telemetry: openTelemetry(options.logger),
    schemas: new Map(),
    upcasters: upcasters(options.upcasters ?? []),
    inline: inlineRegistry(),
    maxEventBytes: 1024 * 1024,
    validateOnRead: false,
  }
}

/** Waits so short that a test can go through all of them. */
export const quick = { baseMs: 1, maxMs: 4, jitter: 0 }

/** A table of effects, one row per applied event, in the order of application. */
export async function makeEffects({ query }: Shop): Promise<void> {
  await query(`create table ~effects (n bigint generated always as identity primary key,
    consumer text not null, position bigint not null, stream text not null, type text not null)`)
}

export interface Effect {
  readonly position: number
  readonly stream: string
  readonly type: string
}

export function effectsOf({ query }: Shop, name: string): Promise<Effect[]> {
  return query<Effect & object>('select position, stream, type from ~effects where consumer = $1 order by n', [name])
}

/** Writes one row per event; `before` may throw, or do more. */
export function recorder(
  shop: Shop,
  name: string,
  options: ConsumerOptions & {
    types?: readonly string[]
    before?: (event: RecordedEvent, tx: Transaction, attempt: number) => unknown
    after?: (event: RecordedEvent, tx: Transaction, attempt: number) => unknown
  } = {},
): Consumer {
  const { types, before, after, ...rest } = options
  const text = shop.named('insert into ~effects (consumer, position, stream, type) values ($1, $2, $3, $4)')
  return consumer(
    {
      name,
      kind: 'projection',
      filter: types === undefined ? {} : { types },
      async handle(events, ctx) {
        for (const event of events) {
          ctx.at(event)
          await before?.(event, ctx.tx, ctx.attempt)
          await ctx.tx.query(text, [name, event.position, event.stream, event.type])
          await after?.(event, ctx.tx, ctx.attempt)
        }
      },
    },
    rest,
  )
}
