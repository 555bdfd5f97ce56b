/**
 * The workflow of the chaos test: an order is paid, checked item by item, cleared, and filed; sometimes a handler fails,
 * for a while or for good. Every handler writes one row with its end, whichever way it runs.
 *
 *     OrderPlaced ─► pay ─► OrderPaid ─► split ─► CheckAsked each ─► check ─► OrderChecked each ─► clear ─► OrderCleared
 *        ├─► file, stock, remind, greet       ordered by workflow, ordered by key, delayed with places per key, waiting
 *        └─ OrderPaid, OrderCleared ─► file   OrderCleared ─► note, inline
 */

import type { Transaction } from '../../../src/database/database.ts'
import { identifier } from '../../../src/database/sql.ts'
import type { RecordedEvent } from '../../../src/events/definition.ts'
import { defineEvents } from '../../../src/events/definition.ts'
import type { Store } from '../../../src/store.ts'
import { defineUndo } from '../../../src/workflows/cancel/undo.ts'
import { batch, complete } from '../../../src/workflows/emit.ts'
import { NonRetryable } from '../../../src/workflows/errors.ts'
import { defineHandler } from '../../../src/workflows/handler.ts'
import { defineJoin } from '../../../src/workflows/joins/join.ts'
import type { Workflows } from '../../../src/workflows/workflows.ts'
import { pause, type Random } from '../seeded-random.ts'
import { effectText, type Rules } from './check-workflows.ts'

export interface OrderMap {
  readonly OrderPlaced: { readonly order: number }
  readonly OrderPaid: { readonly order: number }
  readonly CheckAsked: { readonly order: number; readonly item: number }
  readonly OrderChecked: { readonly order: number; readonly item: number }
  readonly OrderCleared: { readonly order: number }
}

const orderEvents = defineEvents<OrderMap>()

const aisleOf = (order: number): string => `aisle-${order % 3}`

export const rules: Rules = {
  wanted: {
    OrderPlaced: ['pay', 'file', 'stock', 'remind', 'greet'],
    OrderPaid: ['split', 'file'],
    CheckAsked: ['check'],
    OrderCleared: ['file', 'note'],
  },
  lanes: {
    file: event => event.correlation_id,
    note: event => event.correlation_id,
    stock: event => aisleOf((event.data as OrderMap['OrderPlaced']).order),
  },
  joins: { clear: 'split' },
}

/** Further rows of handlers: one for each transactional step, and for each undo. */
export const moreTables: readonly string[] = [
  'create table if not exists ~bookings (execution uuid not null)',
  'create table if not exists ~refunds (execution uuid not null)',
]

export interface OrdersOptions {
  readonly schema: string
  /** Name of the process in the rows it writes. */
  readonly worker: string
  readonly random: Random
  /** The executions that run now. */
  readonly inHand: Set<string>
  /** How a handler takes its time. Default: it sleeps. */
  readonly rest?: typeof pause | undefined
}

interface Run {
  readonly executionId: string
  readonly handler: string
  readonly attempt: number
}

export function registerOrders(store: Store, { schema, worker, random, inHand, rest = pause }: OrdersOptions): void {
  const flows = store.workflows as unknown as Workflows<OrderMap>
  const named = (text: string): string => text.replaceAll(/~(\w+)/g, (_, name) => identifier(schema, name).quoted)
  const policy = { retries: 5, backoff: { baseMs: 5, maxMs: 50 } }

  /** The row of an execution, with the number of emitted events. */
  const effect = (ctx: Run, position: number, emitted = 0) => {
    const values = [ctx.executionId, ctx.handler, position, emitted, ctx.attempt ?? 1, worker]
    return (tx: Transaction) => tx.query(named(effectText), values)
  }
  /** Takes a while; sometimes fails. */
  const work = async ({ executionId }: Run): Promise<void> => {
    inHand.add(executionId)
    try {
      await rest(random, 12)
      if (random() < 0.04) throw new Error('the line is busy')
    } finally {
      inHand.delete(executionId)
    }
  }
  const plain = async (event: RecordedEvent<OrderMap>, ctx: Run) => {
    await work(ctx)
    return complete(effect(ctx, event.position))
  }

  flows.register(
    defineUndo('refund', {
      ...policy,
      run: async (_data: { order: number }, _step, ctx) => {
        await work(ctx)
        return complete(tx => tx.query(named('insert into ~refunds values ($1)'), [ctx.executionId]))
      },
    }),
  )
  flows.register(
    defineHandler('pay', {
      events: orderEvents,
      on: 'OrderPlaced',
      ...policy,
      run: async (event, ctx) => {
        const { order } = event.data
        await ctx.step('charge', () => work(ctx), { undo: { by: 'refund', data: { order } } })
        if (order % 13 === 12) throw new NonRetryable({ reason: 'the card is stolen' })
        return complete(effect(ctx, event.position, 1), ctx.emit('OrderPaid', { order }))
      },
    }),
  )
  flows.register(
    defineHandler('file', {
      events: orderEvents,
      on: ['OrderPlaced', 'OrderPaid', 'OrderCleared'],
      ordered: true,
      ...policy,
      run: plain,
    }),
  )
  flows.register(
    defineHandler('stock', {
      events: orderEvents,
      on: 'OrderPlaced',
      ordered: event => aisleOf(event.data.order),
      ...policy,
      run: plain,
    }),
  )
  const perKey = {
    perKey: 2,
    key: (event: RecordedEvent<OrderMap>) => aisleOf((event.data as { order: number }).order),
  }
  flows.register(
    defineHandler('remind', {
      events: orderEvents,
      on: 'OrderPlaced',
      concurrency: perKey,
      delayMs: 40,
      ...policy,
      run: plain,
    }),
  )
  flows.register(
    defineHandler('greet', {
      events: orderEvents,
      on: 'OrderPlaced',
      ...policy,
      run: async (event, ctx) => {
        await ctx.tx('book', tx => tx.query(named('insert into ~bookings values ($1)'), [ctx.executionId]))
        await ctx.waitForEvent('OrderPaid', { timeoutMs: 1_500 })
        return complete(effect(ctx, event.position))
      },
    }),
  )
  flows.register(
    defineHandler('split', {
      events: orderEvents,
      on: 'OrderPaid',
      ...policy,
      run: async (event, ctx) => {
        await work(ctx)
        const { order } = event.data
        const asked = Array.from({ length: 1 + (order % 4) }, (_, item) => ctx.emit('CheckAsked', { order, item }))
        return complete(effect(ctx, event.position, asked.length), batch(asked, { join: 'clear' }))
      },
    }),
  )
  flows.register(
    defineHandler('check', {
      events: orderEvents,
      on: 'CheckAsked',
      ...policy,
      run: async (event, ctx) => {
        await work(ctx)
        const { order, item } = event.data
        if (item === 2 && order % 7 === 2) throw new NonRetryable({ reason: 'there is no such item' })
        if (item === 1 && order % 5 === 1) return complete(effect(ctx, event.position))
        return complete(effect(ctx, event.position, 1), ctx.emit('OrderChecked', { order, item }))
      },
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: orderEvents,
      on: 'OrderChecked',
      policy: 'allSettled',
      ...policy,
      run: async (events, ctx) => {
        await work(ctx)
        const indexes = events.map(({ data }) => data.item)
        if (String(indexes) !== String([...indexes].sort()))
          throw new NonRetryable({ reason: `in disorder: ${indexes}` })
        const last = events
          .map(({ position }) => position)
          .sort((a, b) => Number(a - b))
          .at(-1)
        return complete(effect(ctx, last ?? 0, 1), ctx.emit('OrderCleared', { order: events[0]?.data.order ?? 0 }))
      },
    }),
  )
  flows.register(
    defineHandler('note', {
      events: orderEvents,
      on: 'OrderCleared',
      inline: true,
      ...policy,
      run: (event, ctx) => complete(effect(ctx as unknown as Run, event.position)),
    }),
  )
}
