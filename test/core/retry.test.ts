import fc from 'fast-check'
import { expect, test, vi } from 'vitest'
import { Aborted } from '../../src/core/errors.ts'
import { delay, retry } from '../../src/core/retry.ts'
import { ConnectionLost } from '../../src/database/errors.ts'
import { VersionConflict } from '../../src/events/errors.ts'
import { manualClock } from './manual-clock.ts'

const backoff = { baseMs: 100, factor: 2, maxMs: 1000, jitter: 0 }
const lost = () => new ConnectionLost({ reason: 'the till was unplugged' })

test('a wait is never longer than the cap, never shorter than its jitter allows, never NaN', () => {
  const anyBackoff = fc.record({
    baseMs: fc.integer({ min: 0, max: 60_000 }),
    factor: fc.double({ min: 1, max: 10, noNaN: true }),
    maxMs: fc.integer({ min: 0, max: 3_600_000 }),
    jitter: fc.double({ min: 0, max: 1, noNaN: true }),
  })
  const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
  fc.assert(
    fc.property(anyBackoff, fc.integer({ min: 1, max: 1_000_000 }), chance, (backoff, attempt, random) => {
      const full = delay({ ...backoff, jitter: 0 }, attempt)
      const waited = delay(backoff, attempt, () => random)

      expect(full).toBeLessThanOrEqual(backoff.maxMs)
      expect(waited).toBeLessThanOrEqual(full)
      expect(waited).toBeGreaterThanOrEqual(full * (1 - backoff.jitter))
      expect(delay({ ...backoff, jitter: 0 }, attempt + 1)).toBeGreaterThanOrEqual(full)
    }),
  )
})

test('waits double from the base to the cap', () => {
  expect([1, 2, 3, 4, 5, 6].map(attempt => delay(backoff, attempt))).toEqual([100, 200, 400, 800, 1000, 1000])
})

test('a call that fails twice succeeds at the third attempt, after both waits', async () => {
  const clock = manualClock()
  const pay = vi.fn(async (attempt: number) => {
    if (attempt < 3) throw lost()
    return 'paid'
  })

  const paid = retry(pay, { retries: 5, backoff, clock })
  await clock.advance(0)
  expect(clock.pending()).toEqual([100])
  await clock.advance(100)
  expect(clock.pending()).toEqual([200])
  await clock.advance(200)

  await expect(paid).resolves.toBe('paid')
  expect(pay.mock.calls).toEqual([[1], [2], [3]])
})

test('the last error is thrown when the retries are used up', async () => {
  const errors = [lost(), lost(), lost()]
  const pay = vi.fn((attempt: number) => {
    throw errors[attempt - 1]
  })

  const paid = retry(pay, { retries: 2, backoff: { ...backoff, baseMs: 0 } })

  await expect(paid).rejects.toBe(errors[2])
  expect(pay).toHaveBeenCalledTimes(3)
})

test('an error that is marked as not retryable is not retried', async () => {
  const conflict = new VersionConflict({ stream: 'order-42', expected: 1, actual: 2 })
  const save = vi.fn(() => Promise.reject(conflict))

  await expect(retry(save, { retries: 5 })).rejects.toBe(conflict)
  expect(save).toHaveBeenCalledOnce()
})

test('the caller can decide which errors are retried', async () => {
  const answers = ['sold out', 'busy']
  const order = () => Promise.reject(new Error(answers.pop()))

  const ordered = retry(order, {
    retries: 5,
    backoff: { ...backoff, baseMs: 0 },
    when: e => (e as Error).message === 'busy',
  })

  await expect(ordered).rejects.toThrow('sold out')
})

test('an abort ends the wait immediately and leaves no timer', async () => {
  const clock = manualClock()
  const closing = new AbortController()
  const pay = vi.fn(() => Promise.reject(lost()))
  const paid = retry(pay, { retries: 5, backoff, clock, signal: closing.signal })
  await clock.advance(0)

  closing.abort('closing time')

  await expect(paid).rejects.toMatchObject({ code: 'aborted', cause: 'closing time' })
  expect(clock.pending()).toEqual([])
  expect(pay).toHaveBeenCalledOnce()
})

test('nothing is tried when the signal has aborted already', async () => {
  const pay = vi.fn()

  await expect(retry(pay, { retries: 5, signal: AbortSignal.abort() })).rejects.toThrow(Aborted)
  expect(pay).not.toHaveBeenCalled()
})
