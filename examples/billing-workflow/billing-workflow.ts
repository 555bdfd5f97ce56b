/**
 * The end of a month. Every customer is billed, some pay late, one never pays, and the month is closed when every invoice is
 * settled.
 *
 *     npx tsx examples/billing-workflow/billing-workflow.ts
 *
 *     MonthEnded ─► bill ─► InvoiceDue, one each ─► collect ─► InvoiceSettled, one each ─► close ─► MonthClosed
 *                                                     └─ charge · remind · wait for a payment · suspend
 *
 * Waits that would take weeks take seconds here; nothing else would be different. The store is in memory.
 */
import { batch, defineEvents, defineHandler, defineJoin, openStore } from 'rillflow'

type BillingEvent =
  | { type: 'MonthEnded'; data: { month: string; customers: string[] } }
  | { type: 'InvoiceDue'; data: { customer: string; cents: number } }
  | { type: 'PaymentMade'; data: { customer: string; by: string } }
  | { type: 'InvoiceSettled'; data: { customer: string; outcome: 'paid' | 'suspended' } }
  | { type: 'MonthClosed'; data: { paid: string[]; suspended: string[] } }

const events = defineEvents<BillingEvent>()
const patienceMs = 3_000 // in real life: two weeks
const asked = new Set<string>()

// Fan-out: an invoice for each customer, in one transaction with the completion of this handler.
const bill = defineHandler('bill', {
  events,
  on: 'MonthEnded',
  emits: ['InvoiceDue'],
  run({ data }, { emit }) {
    console.log(`${data.month} has ended: ${data.customers.length} invoices`)
    return batch(data.customers.map(customer => emit('InvoiceDue', { customer, cents: 4200 })))
  },
})

// One invoice, from the charge to the last consequence. It may be retried or moved to another process at any line: steps are
// recorded, and a wait occupies no process.
const collect = defineHandler('collect', {
  events,
  on: 'InvoiceDue',
  emits: ['InvoiceSettled'],
  retries: 3,
  backoff: { baseMs: 50 },
  async run({ data: { customer, cents } }, { step, waitForEvent, emit, executionId }) {
    const settled = (outcome: 'paid' | 'suspended') => emit('InvoiceSettled', { customer, outcome })
    const isCharged = await step('charge', () => chargeCard(customer, cents, executionId))
    if (isCharged) return settled('paid')

    await step('remind', () => console.log(`${customer}: a reminder goes out`))
    const payment = await waitForEvent('PaymentMade', { match: { customer }, timeoutMs: patienceMs })
    if (payment !== undefined) {
      console.log(`${customer}: has paid by ${payment.data.by}`)
      return settled('paid')
    }
    await step('suspend', () => console.log(`${customer}: is suspended`))
    return settled('suspended')
  },
})

// The join runs once, when every invoice of the batch is settled.
const close = defineJoin('close', {
  events,
  on: 'InvoiceSettled',
  run(invoices, { emit }) {
    const customers = (outcome: string) =>
      invoices.filter(({ data }) => data.outcome === outcome).map(({ data }) => data.customer)
    return emit('MonthClosed', { paid: customers('paid'), suspended: customers('suspended') })
  },
})

await using store = await openStore({ memory: true, events, handlers: [bill, collect], joins: [close] })
await using _runner = await store.start()
const month = await store.workflows.publish('MonthEnded', { month: 'May', customers: ['Ada', 'Bo', 'Cleo', 'Dev'] })

// Bo pays as soon as the invoice exists. The payment is found even if the handler starts to wait for it later.
await month.waitForEvent('InvoiceDue')
await month.signal('PaymentMade', { customer: 'Bo', by: 'bank transfer' })

const { data } = await month.waitForEvent('MonthClosed')
const { state } = await month.waitUntilSettled()
console.log(`The month is closed (${state}): ${data.paid.join(', ')} paid; suspended: ${data.suspended.join(', ')}`)

const failed = await store.workflows.attempts({ correlationId: month.correlationId, outcome: 'failed' })
for (const { handler, error } of failed.items) console.log(`${handler} failed: ${error?.message}. It was tried again.`)

/** The bank. It refuses some cards, and does not answer the first call for Dev. */
function chargeCard(customer: string, cents: number, idempotencyKey: string): boolean {
  if (customer === 'Dev' && !asked.has(idempotencyKey)) {
    asked.add(idempotencyKey)
    throw new Error('the bank does not answer')
  }
  const isGood = customer === 'Ada' || customer === 'Dev'
  console.log(`${customer}: ${cents} cents ${isGood ? 'charged' : 'refused by the bank'}`)
  return isGood
}
