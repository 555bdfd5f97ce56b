/**
 * What must compile and what must not, of schedules. Nothing here runs: the type check of the project is the test, and a
 * `@ts-expect-error` that expects in vain fails it.
 */
import { defineEvents } from '../../src/events/definition.ts'
import { openStore } from '../../src/store.ts'
import { batch } from '../../src/workflows/emit.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'

type ShopEvent = { type: 'NightBegan'; data: { day: string } } | { type: 'StockCounted'; data: { items: number } }

const { workflows } = await openStore({ events: defineEvents<ShopEvent>() })
const untyped = await openStore()

// ── It is due by a cron expression, an interval or a time: one of them ──────────────────────────────────────────────

workflows.register(
  defineSchedule('nightly', { cron: '0 3 * * *', timeZone: 'Europe/Berlin', missed: 'all', run: () => {} }),
)
workflows.register(defineSchedule('often', { everyMs: 1000, timeoutMs: 500, run: async () => undefined }))
workflows.register(defineSchedule('opening', { at: new Date(), correlationId: 'shop', run: () => null }))

// @ts-expect-error: not both
workflows.register(defineSchedule('both', { cron: '0 3 * * *', everyMs: 1000, run: () => {} }))
// @ts-expect-error: none of them
workflows.register(defineSchedule('never', { missed: 'once', run: () => {} }))
// @ts-expect-error: an interval has no time zone
workflows.register(defineSchedule('often', { everyMs: 1000, timeZone: 'Europe/Berlin', run: () => {} }))
// @ts-expect-error: a time is a Date
workflows.register(defineSchedule('opening', { at: '2027-01-01', run: () => {} }))

// ── It publishes events there are ───────────────────────────────────────────────────────────────────────────────────

workflows.register(
  defineSchedule('nightly', {
    everyMs: 1000,
    run: ({ dueAt, emit }) => emit('NightBegan', { day: dueAt.toISOString() }),
  }),
)
workflows.register(
  defineSchedule('nightly', {
    everyMs: 1000,
    run: async ({ name, isManual, signal, emit }) => [
      emit('NightBegan', { day: name }),
      emit('StockCounted', { items: isManual || signal.aborted ? 1 : 2 }),
    ],
  }),
)
untyped.workflows.register(defineSchedule('nightly', { everyMs: 1000, run: ({ emit }) => emit('Anything', {}) }))

// @ts-expect-error: other data
workflows.register(defineSchedule('nightly', { everyMs: 1000, run: ({ emit }) => emit('NightBegan', { day: 1 }) }))
// @ts-expect-error: no such event
workflows.register(defineSchedule('nightly', { everyMs: 1000, run: ({ emit }) => emit('DayBegan', { day: '' }) }))
// @ts-expect-error: batches are for handlers
workflows.register(
  defineSchedule('nightly', { everyMs: 1000, run: ({ emit }) => batch([emit('NightBegan', { day: '' })]) }),
)
