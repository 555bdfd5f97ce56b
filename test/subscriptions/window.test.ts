import fc from 'fast-check'
import { expect, test } from 'vitest'
import { toRecordedEvent } from '../../src/events/read/rows.ts'
import { type Entry, openWindow } from '../../src/subscriptions/window.ts'

const event = (position: number, stream: string) =>
  toRecordedEvent(position, stream, 1, `id-${position}`, 'OrderPlaced', 1, {}, {}, 'c', null, null, new Date(0))

type Step = { do: 'add' | 'skip' | 'take' | 'complete' | 'giveBack' | 'store'; which: number }

const step: fc.Arbitrary<Step> = fc.record({
  do: fc.constantFrom('add', 'skip', 'take', 'take', 'complete', 'complete', 'giveBack', 'store'),
  which: fc.nat(1000),
})

test('for any sequence of calls the limit holds, keys stay in order, and the checkpoint passes only acknowledged events', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 60, maxLength: 200 }), fc.integer({ min: 1, max: 6 }), (steps, limit) => {
      const window = openWindow({ checkpoint: 0, limit, maxBuffered: 8, remnants: new Map() })
      const out: Entry[] = []
      const open = new Map<number, string>()
      const delivered = new Set<number>()
      let position = 0
      let stored = 0
      for (const { do: what, which } of steps) {
        if (what === 'add' && window.room > 0) {
          const key = `order-${which % 3}`
          window.add(event(++position, key), key)
          open.set(position, key)
        } else if (what === 'skip') window.reach(++position)
        else if (what === 'take') {
          const entry = window.take(0, true)
          if (entry !== undefined) {
            // With one at a time, no earlier event of its key is open.
            for (const [before, key] of open)
              if (before < entry.event.position) holds(key !== entry.key, 'a key is out of order')
            delivered.add(entry.event.position)
            out.push(entry)
          }
        } else if (what === 'store') {
          stored = window.checkpoint
          window.forget(stored)
        } else if (out.length > 0) {
          const [entry] = out.splice(which % out.length, 1)
          if (what === 'giveBack') window.giveBack(entry!, 0)
          else {
            window.complete(entry!)
            open.delete(entry!.event.position)
          }
        }
        const beyond = [...delivered].filter(each => each > stored)
        holds(window.out === out.length, 'what is out is miscounted')
        holds(beyond.length <= limit, 'more is delivered than the limit')
        holds(window.checkpoint >= stored, 'the checkpoint went back')
        for (const each of open.keys()) holds(each > window.checkpoint, 'the checkpoint passed what is not done')
      }
      if (open.size === 0) holds(window.checkpoint === position, 'the checkpoint stays behind')
    }),
    { numRuns: 300 },
  )
})

/** Like `expect`, but cheap enough for a million calls. */
function holds(condition: boolean, otherwise: string): void {
  if (!condition) throw new Error(otherwise)
}

test('events left by an earlier holder are delivered neither twice nor too early', () => {
  const remnants = new Map([
    [2, { isDone: true, deliveries: 1, dueAt: 0 }],
    [3, { isDone: false, deliveries: 2, dueAt: 50 }],
  ])
  const window = openWindow({ checkpoint: 0, limit: 10, maxBuffered: 8, remnants })
  for (const position of [1, 2, 3, 4]) window.add(event(position, 'order-1'), 'order-1')

  const now = window.take(10, false)
  const nothing = window.take(10, false)
  const due = window.nextDue()
  const later = window.take(50, false)

  // The waiting event holds up its key.
  expect(now).toBeUndefined()
  expect(nothing).toBeUndefined()
  expect(due).toBe(50)
  expect(later).toMatchObject({ deliveries: 3, event: { position: 3 } })
})

test('after moving back the same events are not delivered twice', () => {
  const window = openWindow({ checkpoint: 0, limit: 10, maxBuffered: 8, remnants: new Map() })
  window.add(event(1, 'order-1'), 'order-1')
  window.reach(9)
  const first = window.take(0, false)

  window.goBack(0)
  window.add(event(1, 'order-1'), 'order-1')
  window.add(event(5, 'order-1'), 'order-1')
  const second = window.take(0, false)

  expect(first).toMatchObject({ event: { position: 1 } })
  expect(second).toMatchObject({ event: { position: 5 } })
  expect(window.take(0, false)).toBeUndefined()
})
