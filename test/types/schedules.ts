/**
 * What must compile and what must not, of schedules. Nothing here runs: the type check of the project is the test, and a
 * `@ts-expect-error` that expects in vain fails it.
 */
import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import { batch, emit } from '../../src/workflows/emit.ts'

type ShopEvent = { type: 'NightBegan'; data: { day: string } } | { type: 'StockCounted'; data: { items: number } }

const { workflows } = await openStore({ events: defineEvents<ShopEvent>() })
const untyped = await openStore()

// ── It is due by a cron expression, an interval or a time: one of them ──────────────────────────────────────────────

workflows.schedule('nightly', { cron: '0 3 * * *', timeZone: 'Europe/Berlin', missed: 'all' }, () => {})
workflows.schedule('often', { everyMs: 1000, timeoutMs: 500 }, async () => undefined)
workflows.schedule('opening', { at: new Date(), correlationId: 'shop' }, () => null)

// @ts-expect-error: not both
workflows.schedule('both', { cron: '0 3 * * *', everyMs: 1000 }, () => {})
// @ts-expect-error: none of them
workflows.schedule('never', { missed: 'once' }, () => {})
// @ts-expect-error: an interval has no time zone
workflows.schedule('often', { everyMs: 1000, timeZone: 'Europe/Berlin' }, () => {})
// @ts-expect-error: a time is a Date
workflows.schedule('opening', { at: '2027-01-01' }, () => {})

// ── It publishes events there are ───────────────────────────────────────────────────────────────────────────────────

workflows.schedule('nightly', { everyMs: 1000 }, ({ dueAt }) => emit('NightBegan', { day: dueAt.toISOString() }))
workflows.schedule('nightly', { everyMs: 1000 }, async ({ name, isManual, signal }) => [
  emit('NightBegan', { day: name }),
  emit('StockCounted', { items: isManual || signal.aborted ? 1 : 2 }),
])
untyped.workflows.schedule('nightly', { everyMs: 1000 }, () => emit('Anything', {}))

// @ts-expect-error: other data
workflows.schedule('nightly', { everyMs: 1000 }, () => emit('NightBegan', { day: 1 }))
// @ts-expect-error: no such event
workflows.schedule('nightly', { everyMs: 1000 }, () => emit('DayBegan', { day: '' }))
// @ts-expect-error: batches are for handlers
workflows.schedule('nightly', { everyMs: 1000 }, () => batch([emit('NightBegan', { day: '' })]))
