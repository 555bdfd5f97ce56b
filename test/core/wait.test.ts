import { expect, test } from 'vitest'
import { sleep } from '../../src/core/abort.ts'
import { waitWithin } from '../../src/core/wait.ts'
import { manualClock } from './manual-clock.ts'

const forever = (signal: AbortSignal): Promise<void> => sleep(1e9, { signal })

test('a wait ends after 30 seconds unless it says otherwise, and says what is missing', async () => {
  const clock = manualClock()
  const wait = { call: 'waitFor', what: 'The delivery', clock, missing: async () => 'The van has no driver.' }

  const waiting = waitWithin({}, wait, forever)
  const impatient = waitWithin({ timeoutMs: 5 }, wait, forever)
  const outcomes = Promise.allSettled([waiting, impatient])
  expect(clock.pending().sort()).toEqual([30_000, 5])
  await clock.advance(30_000)

  expect(await outcomes).toMatchObject([
    { reason: { code: 'timed_out', timeoutMs: 30_000, missing: 'The van has no driver.' } },
    { reason: { message: 'The delivery did not happen within 5 ms. The van has no driver.' } },
  ])
  expect(clock.pending()).toEqual([])
})

test('a wait rejects with the reason of its signal, and with the error of its work', async () => {
  const clock = manualClock()
  const wait = { call: 'waitFor', what: 'The delivery', clock, missing: async () => undefined }
  const abort = new AbortController()

  const waiting = waitWithin({ signal: abort.signal }, wait, forever)
  abort.abort('closing time')

  await expect(waiting).rejects.toBe('closing time')
  await expect(waitWithin({}, wait, () => Promise.reject(new Error('a flat tyre')))).rejects.toThrow('a flat tyre')
  await expect(waitWithin({ timeout: 5 } as never, wait, forever)).rejects.toThrow('Did you mean "timeoutMs"?')
  expect(clock.pending()).toEqual([])
})
