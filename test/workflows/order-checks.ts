/**
 * The shop checks an order: each item separately, and all checks have to return before the order is cleared.
 *
 *     OrderPlaced ─► batch of CheckAsked ─► … ─► OrderChecked each ─► join ─► OrderCleared
 */
import { expect } from 'vitest'
import type { Transaction } from '../../src/database/database.ts'
import { defineEvents } from '../../src/events/definition.ts'
import type { Store, StoreOptions } from '../../src/store.ts'
import { batch } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { WorkflowStatus } from '../../src/workflows/status.ts'
import type { Workflow } from '../../src/workflows/workflow.ts'
import type { Workflows } from '../../src/workflows/workflows.ts'
import { openShop, type Shop, type ShopMap } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

export interface CheckEvents {
  readonly OrderPlaced: { readonly items: readonly string[] }
  readonly CheckAsked: { readonly item: string }
  readonly CheckBegun: { readonly item: string }
  readonly PartAsked: { readonly item: string; readonly part: string }
  readonly PartChecked: { readonly item: string; readonly part: string }
  readonly OrderChecked: { readonly item: string }
  readonly OrderCleared: { readonly items: readonly string[] }
}

export const checkEvents = defineEvents<CheckEvents>()

export interface OrderChecks extends Shop {
  readonly flows: Workflows<CheckEvents>
  /** A second store on the same schema. */
  second(): Promise<{ store: Store<ShopMap>; flows: Workflows<CheckEvents> }>
}

export async function openOrderChecks(options: StoreOptions<ShopMap> = {}): Promise<OrderChecks> {
  const shop = await openShop(options)
  const second: OrderChecks['second'] = async () => {
    const store = await shop.sibling()
    return { store, flows: workflowsOf(store) }
  }
  return { ...shop, flows: workflowsOf(shop.store), second }
}

export function workflowsOf(store: Store<ShopMap>): Workflows<CheckEvents> {
  return store.workflows as unknown as Workflows<CheckEvents>
}

/** A handler that checks an order of several items by a batch. */
export function fanOut(flows: Workflows<CheckEvents>, options: { join?: string } = {}): void {
  flows.register(
    defineHandler('fan-out', {
      events: checkEvents,
      on: 'OrderPlaced',
      run: (event, { emit }) =>
        batch(
          event.data.items.map(item => emit('CheckAsked', { item })),
          options,
        ),
    }),
  )
}

export const items = ['pen', 'ink', 'paper', 'glue', 'tape'] as const

export function settled(flow: Workflow<CheckEvents>): Promise<WorkflowStatus> {
  return flow.waitUntilSettled({ timeoutMs: 60_000 })
}

/** An event from outside with its place in a batch, all of one order. */
export function publishChecked(
  { flows }: Pick<OrderChecks, 'flows'>,
  batch: { id: string; index: number; size: number },
  item = 'pen',
  more: { tx?: Transaction } = {},
): Promise<Workflow<CheckEvents>> {
  return flows.publish('OrderChecked', { item }, { correlationId: 'order-1', batch, ...more })
}

export interface DeadLetterRow {
  readonly consumer: string
  readonly reason: string
  readonly type: string
  readonly event_id: string
  readonly attempts: number
  readonly state: string
}

export function deadLettersOf({ query }: OrderChecks): Promise<DeadLetterRow[]> {
  return query<DeadLetterRow>(`
    select consumer, reason, type, event_id, attempts, state
    from ~dead_letters
    order by consumer, first_failed_at`)
}

/** The joins of the shop, with the entry at each index. */
export async function joinsOf({ query }: OrderChecks): Promise<unknown[]> {
  const rows = await query<{ handler: string; entries: string[] | null }>(`
    select r.handler, r.version, j.state, j.size, j.arrived, j.failed, j.empty,
      (select jsonb_agg(e.index || ' ' || e.outcome order by e.index)
        from ~workflow_join_entries e where e.join_id = j.id) as entries
    from ~workflow_joins j join ~workflow_routes r on r.id = j.route
    order by j.opened_at, r.handler`)
  return rows
}

/** Only history and tombstones are left. */
export async function expectNothingOpen({ query }: OrderChecks): Promise<void> {
  expect(await query('select id from ~workflow_executions')).toEqual([])
  expect(await query('select open from ~workflows where open <> 0')).toEqual([])
  expect(await query("select state from ~workflow_joins where state = 'open'")).toEqual([])
  expect(await query('select batch_id, index, open from ~workflow_branches where open <> 0')).toEqual([])
  expect(await query('select sum(active)::int as n from ~workflow_counters')).toEqual([{ n: 0 }])
}

/** Resolves when there are this many entries. */
export async function joined({ query }: OrderChecks, entries: number): Promise<void> {
  await waitUntil(async () => (await query('select 1 from ~workflow_join_entries')).length === entries)
}
