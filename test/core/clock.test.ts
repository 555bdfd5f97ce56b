import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

test('a timer fires when it is due, and not before', () => {
  const open = vi.fn()
  systemClock.setTimeout(open, 1000)

  vi.advanceTimersByTime(999)
  expect(open).not.toHaveBeenCalled()

  vi.advanceTimersByTime(1)
  expect(open).toHaveBeenCalledOnce()
})

test('a cancelled timer never fires, and cancelling it again is harmless', () => {
  const open = vi.fn()
  const timer = systemClock.setTimeout(open, 1000)

  timer.cancel()
  timer.cancel()

  vi.advanceTimersByTime(5000)
  expect(open).not.toHaveBeenCalled()
})

test('a wait of 60 days works, although one timer of Node lasts only 24 days', () => {
  const release = vi.fn()
  const sixtyDaysMs = 60 * 24 * 3600 * 1000
  systemClock.setTimeout(release, sixtyDaysMs)

  vi.advanceTimersByTime(sixtyDaysMs - 1)
  expect(release).not.toHaveBeenCalled()

  vi.advanceTimersByTime(1)
  expect(release).toHaveBeenCalledOnce()
})

test('a long wait can be cancelled in any of its parts', () => {
  const release = vi.fn()
  const timer = systemClock.setTimeout(release, 2 ** 33)
  vi.advanceTimersByTime(2 ** 32)

  timer.cancel()

  expect(vi.getTimerCount()).toBe(0)
})

test('the clock returns the time of the machine', () => {
  vi.setSystemTime(new Date('2026-03-01T09:00:00Z'))

  expect(systemClock.now()).toEqual(new Date('2026-03-01T09:00:00Z'))
})

test('an unheld timer lets the process end while it waits', () => {
  vi.useRealTimers()
  const before = process.getActiveResourcesInfo().filter(kind => kind === 'Timeout').length
  const timer = systemClock.setTimeout(() => {}, 60_000)
  const held = process.getActiveResourcesInfo().filter(kind => kind === 'Timeout').length

  timer.unref?.()

  expect(held).toBe(before + 1)
  expect(process.getActiveResourcesInfo().filter(kind => kind === 'Timeout')).toHaveLength(before)
  timer.cancel()
})
