import { getEventListeners } from 'node:events'
import { describe, expect, test, vi } from 'vitest'
import { abortable, deadline, deferred, onAbort, once, sleep, throwIfAborted } from '../../src/core/abort.ts'
import { Aborted, StoreClosed, TimedOut } from '../../src/core/errors.ts'
import { manualClock } from './manual-clock.ts'

const listeners = (signal: AbortSignal) => getEventListeners(signal, 'abort').length

describe('abort', () => {
  test('an aborted call throws Aborted with the reason as its cause', () => {
    const signal = AbortSignal.abort('the customer left')

    expect(() => throwIfAborted(signal)).toThrow(Aborted)
    expect(() => throwIfAborted(signal)).toThrow(expect.objectContaining({ cause: 'the customer left' }))
    expect(() => throwIfAborted(new AbortController().signal)).not.toThrow()
    expect(() => throwIfAborted()).not.toThrow()
  })

  test('a closed store reports itself as the reason', () => {
    const closed = new StoreClosed({})

    expect(() => throwIfAborted(AbortSignal.abort(closed))).toThrow(closed)
  })

  test('whichever settles first wins: the result', async () => {
    const { signal } = new AbortController()

    await expect(abortable(Promise.resolve('tea'), signal)).resolves.toBe('tea')
    await expect(abortable(Promise.reject(new Error('spilt')), signal)).rejects.toThrow('spilt')
    expect(listeners(signal)).toBe(0)
  })

  test('whichever settles first wins: the abort, and a late rejection is not unhandled', async () => {
    const shop = new AbortController()
    const delivery = deferred<string>()
    const waiting = abortable(delivery.promise, shop.signal)

    shop.abort('closing time')
    delivery.reject(new Error('spilt'))

    await expect(waiting).rejects.toMatchObject({ code: 'aborted', cause: 'closing time' })
    await expect(abortable(Promise.reject(new Error('spilt')), shop.signal)).rejects.toThrow(Aborted)
  })

  test('a thousand waits share one listener on a long-lived signal, and leave none behind', async () => {
    const warnings = vi.spyOn(process, 'emitWarning')
    const { signal } = new AbortController()
    const deliveries = Array.from({ length: 1000 }, () => deferred<void>())
    const waits = deliveries.map(delivery => abortable(delivery.promise, signal))
    expect(listeners(signal)).toBe(1)

    for (const delivery of deliveries) delivery.resolve()
    await Promise.all(waits)

    expect(listeners(signal)).toBe(0)
    expect(warnings).not.toHaveBeenCalled()
    warnings.mockRestore()
  })

  test('every listener is called once, also one that removes another, and a removed one is not called', () => {
    const shop = new AbortController()
    const reported: string[] = []
    onAbort(shop.signal, () => {
      reported.push('till')
      releaseLamp()
    })
    const releaseLamp = onAbort(shop.signal, () => reported.push('lamp'))
    const releaseSecond = onAbort(shop.signal, () => reported.push('door'))
    onAbort(shop.signal, () => reported.push('radio'))
    releaseSecond()
    releaseSecond()

    shop.abort()
    onAbort(shop.signal, () => reported.push('too late, so at once'))

    expect(reported).toEqual(['till', 'radio', 'too late, so at once'])
    expect(listeners(shop.signal)).toBe(0)
  })
})

describe('deadline', () => {
  test('aborts with TimedOut when its time is up', async () => {
    const clock = manualClock()
    const { signal } = deadline(undefined, 500, { what: 'The delivery', clock })

    await clock.advance(499)
    expect(signal.aborted).toBe(false)
    await clock.advance(1)

    expect(() => throwIfAborted(signal)).toThrow(TimedOut)
    expect(signal.reason).toMatchObject({ what: 'The delivery', timeoutMs: 500, retryable: true })
  })

  test('aborts with the reason of the given signal, and stops its timer', () => {
    const clock = manualClock()
    const shop = new AbortController()
    const { signal } = deadline(shop.signal, 500, { clock })

    shop.abort('closing time')

    expect(signal.reason).toBe('closing time')
    expect(clock.pending()).toEqual([])
  })

  test('leaves neither timer nor listener once disposed', () => {
    const clock = manualClock()
    const shop = new AbortController()
    const limit = deadline(shop.signal, 500, { clock })

    limit.dispose()
    limit.dispose()
    shop.abort()

    expect(limit.signal.aborted).toBe(false)
    expect(clock.pending()).toEqual([])
    expect(listeners(shop.signal)).toBe(0)
  })

  test('leaves nothing on the given signal when its time is up', async () => {
    const clock = manualClock()
    const { signal } = new AbortController()
    deadline(signal, 500, { clock })

    await clock.advance(500)

    expect(listeners(signal)).toBe(0)
  })

  test('without a time it is the given signal, or one that never aborts', () => {
    const { signal } = new AbortController()

    expect(deadline(signal).signal).toBe(signal)
    expect(deadline(signal, Infinity).signal).toBe(signal)
    expect(deadline().signal.aborted).toBe(false)
  })

  test('is aborted from the start if the given signal has aborted already', () => {
    const clock = manualClock()

    expect(deadline(AbortSignal.abort('closed'), 500, { clock }).signal.reason).toBe('closed')
    expect(clock.pending()).toEqual([])
  })
})

describe('sleep', () => {
  test('ends when its time is up and leaves nothing on the signal', async () => {
    const clock = manualClock()
    const { signal } = new AbortController()
    const night = sleep(8, { clock, signal })
    expect(listeners(signal)).toBe(1)

    await clock.advance(8)

    await expect(night).resolves.toBeUndefined()
    expect(listeners(signal)).toBe(0)
  })

  test('ends with the abort and clears its timer', async () => {
    const clock = manualClock()
    const shop = new AbortController()
    const night = sleep(8, { clock, signal: shop.signal })

    shop.abort('burglars')

    await expect(night).rejects.toMatchObject({ code: 'aborted', cause: 'burglars' })
    expect(clock.pending()).toEqual([])
  })

  test('does not begin when the signal has aborted already', async () => {
    const clock = manualClock()

    await expect(sleep(8, { clock, signal: AbortSignal.abort() })).rejects.toThrow(Aborted)
    expect(clock.pending()).toEqual([])
  })
})

describe('once', () => {
  test('closing twice closes once, and both callers get the same outcome', async () => {
    const lock = vi.fn(async () => 'locked')
    const close = once(lock)

    expect(close()).toBe(close())
    await expect(close()).resolves.toBe('locked')
    expect(lock).toHaveBeenCalledOnce()
  })

  test('a failure is the outcome for every caller, thrown or rejected', async () => {
    const close = once(() => {
      throw new Error('the key is lost')
    })

    await expect(close()).rejects.toThrow('the key is lost')
    await expect(close()).rejects.toThrow('the key is lost')
  })

  test('closing may close a part that closes the whole', async () => {
    const calls: string[] = []
    const closeShop = once(() => {
      calls.push('shop')
      void closeTill()
    })
    const closeTill = once(() => {
      calls.push('till')
      void closeShop()
    })

    await closeShop()

    expect(calls).toEqual(['shop', 'till'])
  })
})
