/**
 * What must compile and what must not, of steps, waits and child workflows. Nothing here runs: the type check of the project is
 * the test, and a `@ts-expect-error` that expects in vain fails it.
 */
import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import { crashEverywhere, recordEffects } from '../../src/testing/testing.ts'
import { defineUndo } from '../../src/workflows/cancel/undo.ts'
import { defineHandler } from '../../src/workflows/handler.ts'

type ShopEvent = { type: 'OrderPlaced'; data: { total: number } } | { type: 'OrderPaid'; data: { method: string } }

const events = defineEvents<ShopEvent>()
const { workflows } = await openStore({ events })
const untyped = await openStore()

// ── An undo has the data that its step gives it ─────────────────────────────────────────────────────────────────────

const refund = defineUndo('refund', {
  async run(data: { cents: number }, step, ctx) {
    const known: [boolean, unknown, string] = [step.isKnown, step.result, step.name]
    await ctx.step('pay back', () => known.length + data.cents)
  },
})

workflows.register(
  defineHandler('pay', {
    events,
    on: 'OrderPlaced',
    run: async (event, ctx) => {
      // ── Steps give what they return ───────────────────────────────────────────────────────────────────────────────────

      const receipt: { id: string } = await ctx.step('charge', () => ({ id: `${event.data.total}` }))
      const paidAt: string = (await ctx.step('clock', () => ({ at: new Date() }))).at
      // @ts-expect-error: a Date in a result is text when it comes back
      const date: Date = (await ctx.step('clock', () => ({ at: new Date() }))).at
      await ctx.sleepUntil(new Date(paidAt))
      await ctx.sleepUntil('due', date)
      const rows: { n: number }[] = await ctx.tx('book', tx => tx.query<{ n: number }>('select 1 as n'))
      await ctx.step('tell', async () => {}, { undo: { by: 'untell', data: { receipt, rows } } })
      await ctx.step('charge', async () => {}, { undo: { by: refund, data: { cents: 1 } } })

      // @ts-expect-error: a step is something to be done
      await ctx.step('charge', 'now')
      // @ts-expect-error: of another type
      const wrong: number = await ctx.step('charge', () => 'receipt')
      // @ts-expect-error: an undo has a name
      await ctx.step('charge', () => wrong, { undo: {} })
      // @ts-expect-error: of other data
      await ctx.step('charge', () => wrong, { undo: { by: refund, data: { cents: '1' } } })

      // ── Sleeps need a time ────────────────────────────────────────────────────────────────────────────────────────────

      await ctx.sleep(1_000)
      await ctx.sleep('a while', 1_000)

      // @ts-expect-error: how long?
      await ctx.sleep('a while')
      // @ts-expect-error: in milliseconds
      await ctx.sleep('1 s', '1 s')

      // ── An event that is waited for has its type; with a limit there may be none ──────────────────────────────────────

      const paid = await ctx.waitForEvent('OrderPaid', { match: { method: 'card' } })
      const inTime = await ctx.waitForEvent('OrderPaid', { timeoutMs: 1_000 })
      const methods: (string | undefined)[] = [paid.data.method, inTime?.data.method]

      // @ts-expect-error: it may not have come in time
      methods.push(inTime.data.method)
      // @ts-expect-error: no such event
      await ctx.waitForEvent('OrderShipped')
      // @ts-expect-error: a match is an object
      await ctx.waitForEvent('OrderPaid', { match: 'card' })

      // ── Children are started by events there are ──────────────────────────────────────────────────────────────────────

      const child = await ctx.start('OrderPlaced', { total: 1 }, { key: 'gift' })
      const { state, deadLetters } = await child.waitUntilSettled()
      methods.push(state, `${deadLetters}`, child.correlationId)

      // @ts-expect-error: other data
      await ctx.start('OrderPlaced', { total: '1' })
      // @ts-expect-error: no such event
      await ctx.start('OrderShipped', {})
    },
  }),
)

untyped.workflows.register(
  defineHandler('any', {
    on: 'Anything',
    run: async (_event, ctx) => {
      const event = await ctx.waitForEvent('SomethingElse')
      await ctx.start('More', { because: event.data })
    },
  }),
)

// ── A workflow that is killed anywhere takes events there are ───────────────────────────────────────────────────────────

const effects = recordEffects()
const killed = defineHandler('killed', {
  events,
  on: 'OrderPlaced',
  run: (_event, { emit }) => emit('OrderPaid', { method: 'card' }),
})
const { points } = await crashEverywhere(killed, { given: { type: 'OrderPlaced', data: { total: 1 } }, effects })
const lines: (string | undefined)[] = points.map(({ line }) => line)
// @ts-expect-error: no such event
await crashEverywhere(killed, { given: { type: 'OrderLost', data: {} } })
// @ts-expect-error: no such option
await crashEverywhere(killed, { given: { type: 'OrderPlaced', data: { total: 1 } }, keys: true })
const receipt: string = await effects.record('charge', { total: lines.length }, { result: 'receipt-1' })
void ((await effects.record(receipt)) satisfies undefined)

await untyped.register(refund)
workflows.register(refund)
