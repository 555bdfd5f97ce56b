/** A shop whose payments fail until they are fixed: every order becomes a dead letter of the handler `pay`. */
import { onTestFinished } from 'vitest'
import type { StoreOptions } from '../../src/store.ts'
import type { AnyHandlerOptions } from '../../src/workflows/handler.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { Worker } from '../../src/workflows/work/worker.ts'
import type { Workflow } from '../../src/workflows/workflow.ts'
import { openShop, type Shop, type ShopMap, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

export interface FailingPayments extends Shop {
  readonly flows: Shop['store']['workflows']
  readonly worker: Worker
  /** The totals of the orders whose payment was tried. */
  readonly tried: number[]
  /** From now on payments succeed. */
  fix(): void
  breakAgain(): void
  /** Places an order and waits until its workflow has settled; returns the id of its event. */
  place(total: number, correlationId?: string): Promise<string>
  /** Waits until the dead letter of this event is in this state. */
  until(eventId: string, state: string): Promise<void>
}

export async function openFailingPayments(
  options: Omit<Partial<AnyHandlerOptions>, 'name'> = {},
  storeOptions: StoreOptions<ShopMap> = {},
): Promise<FailingPayments> {
  const shop = await openShop(storeOptions)
  const flows = shop.store.workflows
  const tried: number[] = []
  let isFixed = false
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      ...(options as object),
      run: (event, { emit }) => {
        tried.push(event.data.total)
        if (!isFixed) throw new Error(`no money for ${event.data.total}`)
        return emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  const worker = flows.worker({ pollMs: 200 })
  await worker.start()
  onTestFinished(() => worker.stop())
  return {
    ...{ ...shop, flows, worker, tried },
    fix: () => {
      isFixed = true
    },
    breakAgain: () => {
      isFixed = false
    },
    async place(total, correlationId) {
      const id = crypto.randomUUID()
      const flow: Workflow<ShopMap> = await flows.publish('OrderPlaced', { total }, { id, correlationId })
      await flow.waitUntilSettled()
      return id
    },
    until: (eventId, state) =>
      waitUntil(async () => (await flows.deadLetters.show('pay', eventId)).state === state, { what: state }),
  }
}
