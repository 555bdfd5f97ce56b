/** What happens because of an event: handlers, joins and undos run durably; a subscription and a schedule complete the shop. */
import { batch, defineHandler, defineJoin, defineSchedule, defineSubscription, defineUndo } from 'rillflow'
import { events } from './events.ts'
import { gateway, mail } from './world.ts'

/** Returns the money of a charge whose workflow is cancelled with `compensate`. */
export const refund = defineUndo('refund', {
  run: (data: { cents: number }, step) => gateway.refund(data, step.result),
})

export const charge = defineHandler('charge', {
  events,
  on: 'OrderPlaced',
  retries: 5,
  backoff: { baseMs: 100 },
  async run(event, { step, emit, executionId }) {
    // A step is recorded: a retry, here or in another process, gets its result instead of charging again.
    const { cents } = event.data
    const receipt = await step('charge-card', () => gateway.charge(cents, { idempotencyKey: executionId }), {
      undo: { by: refund, data: { cents } },
    })
    return [
      emit('OrderPaid', { receipt }, { stream: event.stream }), // into the order's own stream
      batch(event.data.items.map(item => emit('PackAsked', { item, order: event.stream }))),
    ]
  },
})

export const pack = defineHandler('pack', {
  events,
  on: 'PackAsked',
  run: (event, { emit }) => emit('ItemPacked', event.data),
})

/** Runs once, when every item of the batch is packed. */
export const ship = defineJoin('ship', {
  events,
  on: 'ItemPacked',
  joinTimeoutMs: 60_000,
  run: (items, { emit }) => emit('OrderShipped', { carrier: 'Swift' }, { stream: items[0]!.data.order }),
})

export const mailer = defineSubscription('mailer', {
  events,
  types: ['OrderShipped'],
  run: event => mail(event),
})

export const nightly = defineSchedule('nightly-report', {
  events,
  cron: '0 3 * * *',
  timeZone: 'Europe/Berlin',
  run: ({ emit, dueAt }) => emit('DayEnded', { day: dueAt.toISOString().slice(0, 10) }),
})
