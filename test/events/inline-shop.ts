/**
 * A shop with an inline projection: the total of each order, in a table that only the projection writes. Its stores are
 * assembled here, because registering inline projections is internal to a store.
 */
import { onTestFinished } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { StoreClosed } from '../../src/core/errors.ts'
import { uuidv7Ids } from '../../src/core/id.ts'
import type { Database, Transaction } from '../../src/database/database.ts'
import { parsers } from '../../src/database/parse.ts'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { foreignExecutor, isOwnTransaction } from '../../src/database/transaction.ts'
import { defaultGroupLimits, groupCommit } from '../../src/events/append/group-commit.ts'
import type { RecordedEvent } from '../../src/events/definition.ts'
import { type Events, openEvents } from '../../src/events/events.ts'
import { activateInline, retireInline } from '../../src/events/inline/barrier.ts'
import { type InlineProjection, inlineRegistry } from '../../src/events/inline/registry.ts'
import { type Log, logNames } from '../../src/events/log.ts'
import { openWake } from '../../src/events/order/wake.ts'
import { watchLog } from '../../src/events/order/watch.ts'
import { type Upcaster, upcasters } from '../../src/events/read/upcast.ts'
import { openTelemetry } from '../../src/telemetry/telemetry.ts'
import { postgresUrl } from '../support/engines.ts'
import { onServer, openShop, type Shop, type ShopMap } from '../support/shop.ts'

export interface InlineShop extends Omit<Shop, 'sibling'> {
  readonly log: Log
  readonly events: Events<ShopMap>
  /** The projection of totals, not registered yet. */
  totals(more?: Partial<InlineProjection>): InlineProjection
  /** Registers it here and makes it active in the database. */
  activate(projection: InlineProjection): Promise<() => void>
  retire(name: string): Promise<boolean>
  /** The rows of the projection. */
  rows(): Promise<TotalRow[]>
  /** Another process on the same log. */
  other(options?: {
    url?: string
    maxConnections?: number
  }): Promise<{ log: Log; events: Events<ShopMap>; database: Database }>
}

export interface TotalRow {
  stream: string
  total: number
  events: number
}

export async function openInlineShop(options: { upcasters?: readonly Upcaster[] } = {}): Promise<InlineShop> {
  const shop = await openShop(options.upcasters === undefined ? {} : { upcasters: options.upcasters })
  const { database, schema, named, query } = shop
  await query('create table ~totals (stream text primary key, total integer not null, events integer not null)')
  const { log, events } = partsOf(database, schema, options.upcasters)

  const totals = (more: Partial<InlineProjection> = {}): InlineProjection => ({
    name: 'totals',
    version: 1,
    types: ['OrderPlaced'],
    apply: (applied, tx) => fold(named, tx, applied),
    ...more,
  })
  return {
    ...shop,
    log,
    events,
    totals,
    async activate(projection) {
      const unregister = log.inline.register(projection)
      await database.transaction(tx => activateInline(log, tx, projection))
      return unregister
    },
    retire: name => database.transaction(tx => retireInline(log, tx, name)),
    rows: () => query<TotalRow>('select stream, total, events from ~totals order by stream'),
    async other({ url, maxConnections } = {}) {
      if (!onServer) return { ...partsOf(database, schema), database }
      const own = await openPostgres({ url: url ?? postgresUrl(), maxConnections })
      onTestFinished(() => own.close(1000))
      return { ...partsOf(own, schema), database: own }
    },
  }
}

/** Applies events to the projection's table, wherever they come from. */
export async function fold(
  named: (text: string) => string,
  tx: Transaction,
  events: readonly RecordedEvent[],
): Promise<void> {
  for (const { stream, data } of events)
    await tx.query(
      named(`
        insert into ~totals as t (stream, total, events)
        values ($1, $2, 1)
        on conflict (stream) do update set total = t.total + excluded.total, events = t.events + 1`),
      [stream, (data as { total: number }).total],
    )
}

function partsOf(
  database: Database,
  schema: string,
  steps: readonly Upcaster[] = [],
): { log: Log; events: Events<ShopMap> } {
  const log: Log = {
    database,
    schema,
    names: logNames(schema),
    channel: 'rillflow_events',
    clock: systemClock,
    ids: uuidv7Ids({ clock: systemClock }),
    telemetry: openTelemetry(undefined),
    schemas: new Map(),
    upcasters: upcasters(steps),
    inline: inlineRegistry(),
    maxEventBytes: 1024 * 1024,
    validateOnRead: false,
  }
  const wake = openWake(log)
  const watch = watchLog(log, wake, 1000)
  const group = groupCommit(log, defaultGroupLimits)
  onTestFinished(async () => {
    watch.close(new StoreClosed({}))
    await group.drain()
    await wake.close()
  })
  const types = { getTypeParser: (oid: number) => parsers[oid] ?? ((text: string) => text) }
  const executorOf: Parameters<typeof openEvents>[0]['executorOf'] = tx =>
    isOwnTransaction(tx) ? tx : foreignExecutor(tx, types)
  return { log, events: openEvents<ShopMap>({ log, group, wake, watch, executorOf, rememberIds: () => {} }) }
}
