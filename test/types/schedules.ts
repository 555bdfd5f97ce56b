/**
 * What must compile and what must not, of schedules. Nothing here runs: the type check of the project is the test, and a
 * `@ts-expect-error` that expects in vain fails it.
 */
import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import { batch } from '../../src/workflows/emit.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'

type ShopEvent = { type: 'NightBegan'; data: { day: string } } | { type: 'StockCounted'; data: { items: number } }

const events = defineEvents<ShopEvent>()
const store = await openStore({ events })
const untyped = await openStore()
const run = (): void => {}

// ── It is due by a cron expression, an interval or a time: one of them ──────────────────────────────────────────────

defineSchedule('nightly', { cron: '0 3 * * *', timeZone: 'Europe/Berlin', missed: 'all', run })
defineSchedule('often', { everyMs: 1000, timeoutMs: 500, run: async () => undefined })
defineSchedule('opening', { at: new Date(), correlationId: 'shop', run: () => null })

// @ts-expect-error: not both
defineSchedule('both', { cron: '0 3 * * *', everyMs: 1000, run })
// @ts-expect-error: none of them
defineSchedule('never', { missed: 'once', run })
// @ts-expect-error: an interval has no time zone
defineSchedule('often', { everyMs: 1000, timeZone: 'Europe/Berlin', run })
// @ts-expect-error: a time is a Date
defineSchedule('opening', { at: '2027-01-01', run })

// ── It publishes events there are ───────────────────────────────────────────────────────────────────────────────────

const nightly = defineSchedule('nightly', {
  events,
  everyMs: 1000,
  run: ({ dueAt, emit }) => emit('NightBegan', { day: dueAt.toISOString() }),
})
defineSchedule('nightly', {
  events,
  everyMs: 1000,
  run: async ({ name, isManual, signal, emit }) => [
    emit('NightBegan', { day: name }),
    emit('StockCounted', { items: isManual || signal.aborted ? 1 : 2 }),
  ],
})
const anything = defineSchedule('nightly', { everyMs: 1000, run: ({ emit }) => emit('Anything', {}) })

// @ts-expect-error: other data
defineSchedule('nightly', { events, everyMs: 1000, run: ({ emit }) => emit('NightBegan', { day: 1 }) })
// @ts-expect-error: no such event
defineSchedule('nightly', { events, everyMs: 1000, run: ({ emit }) => emit('DayBegan', { day: '' }) })
// @ts-expect-error: batches are for handlers
defineSchedule('nightly', { events, everyMs: 1000, run: ({ emit }) => batch([emit('NightBegan', { day: '' })]) })

// ── A store takes the schedules whose events it has ─────────────────────────────────────────────────────────────────

await store.register(nightly, anything)
await untyped.register(nightly, anything)
await openStore({ events, schedules: [nightly, anything] })

const others = await openStore({ events: defineEvents<{ type: 'DayBegan'; data: null }>() })
// @ts-expect-error: a store of other events
await others.register(nightly)
