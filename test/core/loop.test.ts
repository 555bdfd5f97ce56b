import { AsyncLocalStorage } from 'node:async_hooks'
import { describe, expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { type Loop, type LoopOptions, openLoop } from '../../src/core/loop.ts'
import { manualClock } from './manual-clock.ts'

/**
 * A loop whose looks are counted, and which waits exactly as long as it should: no jitter, a backoff of 100, 200, 400
 * ms.
 */
function watchShelf(look: LoopOptions['look'], options: Partial<LoopOptions> = {}) {
  const clock = manualClock()
  const shelf = { looks: 0, clock, failures: [] as unknown[], loop: undefined as unknown as Loop }
  shelf.loop = openLoop({
    look(signal) {
      shelf.looks++
      return look(signal)
    },
    pollMs: 1_000,
    jitter: 0,
    backoff: { baseMs: 100, factor: 2, maxMs: 400, jitter: 0 },
    onFailure: error => shelf.failures.push(error),
    clock,
    ...options,
  })
  return shelf
}

describe('when a loop looks', () => {
  test('it looks immediately when it is requested, and then with every poll', async () => {
    const shelf = watchShelf(() => {})

    shelf.loop.lookSoon()
    expect(shelf.looks).toBe(1)
    await shelf.clock.advance(0)
    await shelf.clock.advance(999)
    expect(shelf.looks).toBe(1)
    await shelf.clock.advance(1)
    expect(shelf.looks).toBe(2)
    await shelf.clock.advance(1_000)
    expect(shelf.looks).toBe(3)
  })

  test('ten hints during a look cause one more look, which begins after the last of them', async () => {
    const first = deferred<undefined>()
    const shelf = watchShelf(() => (shelf.looks === 1 ? first.promise : undefined))

    shelf.loop.lookSoon()
    for (let hint = 0; hint < 10; hint++) shelf.loop.lookSoon()
    expect(shelf.looks).toBe(1)
    first.resolve(undefined)
    await shelf.clock.advance(0)

    expect(shelf.looks).toBe(2)
  })

  test('a look that requests another one does not run inside itself', async () => {
    let depth = 0
    const depths: number[] = []
    const shelf = watchShelf(() => {
      depths.push(++depth)
      if (shelf.looks === 1) shelf.loop.lookSoon()
      depth--
    })

    shelf.loop.lookSoon()
    await shelf.clock.advance(0)

    expect(depths).toEqual([1, 1])
  })

  test('a look that returns 0 is followed by another immediately, one that returns 20 by one within 20 ms', async () => {
    const waits = [0, 0, 20, undefined]
    const shelf = watchShelf(() => waits.shift())

    shelf.loop.lookSoon()
    for (let turn = 0; turn < 3; turn++) await shelf.clock.advance(0)
    expect(shelf.looks).toBe(3)
    await shelf.clock.advance(20)

    expect(shelf.looks).toBe(4)
    expect(shelf.clock.pending()).toEqual([1_000])
  })

  test('the earliest of several times counts, also if it is set during a look', async () => {
    const shelf = watchShelf(() => {
      if (shelf.looks === 1) shelf.loop.lookIn(50)
      return 300
    })

    shelf.loop.lookSoon()
    await shelf.clock.advance(0)
    shelf.loop.lookIn(200)
    expect(shelf.clock.pending()).toEqual([50])
    await shelf.clock.advance(50)

    expect(shelf.looks).toBe(2)
  })

  test('polls differ by the jitter, so that many processes do not query at the same moment', async () => {
    const shelf = watchShelf(() => {}, { jitter: 0.2, random: () => 0.75 })

    shelf.loop.lookSoon()
    await shelf.clock.advance(0)

    expect(shelf.clock.pending()).toEqual([1_100])
  })

  test('a loop at rest queries nothing until a caller is interested again', async () => {
    const shelf = watchShelf(() => {})

    shelf.loop.lookSoon()
    await shelf.clock.advance(0)
    shelf.loop.rest()
    await shelf.clock.advance(60_000)
    expect(shelf.looks).toBe(1)
    shelf.loop.lookSoon()

    expect(shelf.looks).toBe(2)
  })

  test('a loop that is put to rest during a look sets no timer after it', async () => {
    const shelf = watchShelf(() => {
      shelf.loop.rest()
    })

    shelf.loop.lookSoon()
    await shelf.clock.advance(0)

    expect(shelf.clock.pending()).toEqual([])
  })
})

describe('failures', () => {
  test('each failure in a row waits longer, up to the limit, and a success starts anew', async () => {
    let isAway = true
    const shelf = watchShelf(() => {
      if (isAway) throw new Error('the shelf is away')
    })

    shelf.loop.lookSoon()
    for (const waitMs of [100, 200, 400, 400]) {
      await shelf.clock.advance(0)
      expect(shelf.clock.pending()).toEqual([waitMs])
      await shelf.clock.advance(waitMs)
    }
    expect(shelf.failures).toHaveLength(5)
    isAway = false
    await shelf.clock.advance(400)

    expect(shelf.clock.pending()).toEqual([1_000])
  })

  test('a hint does not shorten the backoff, and is not lost', async () => {
    const shelf = watchShelf(() => {
      if (shelf.looks === 1) throw new Error('the shelf is away')
    })

    shelf.loop.lookSoon()
    await shelf.clock.advance(0)
    shelf.loop.lookSoon()
    shelf.loop.lookIn(5)
    await shelf.clock.advance(99)
    expect(shelf.looks).toBe(1)
    await shelf.clock.advance(1)

    expect(shelf.looks).toBe(2)
  })

  test('a caller that waits for an answer does shorten it, and gets the failure of its own look', async () => {
    const shelf = watchShelf(() => {
      if (shelf.looks <= 2) throw new Error(`failure ${shelf.looks}`)
    })

    await expect(shelf.loop.lookNow()).rejects.toThrow('failure 1')
    await expect(shelf.loop.lookNow()).rejects.toThrow('failure 2')
    await shelf.loop.lookNow()

    expect(shelf.looks).toBe(3)
  })

  test('a caller that comes during a look is answered by the next one', async () => {
    const first = deferred<undefined>()
    const shelf = watchShelf(() => (shelf.looks === 1 ? first.promise : undefined))

    shelf.loop.lookSoon()
    const answer = shelf.loop.lookNow()
    first.reject(new Error('the shelf fell'))
    await answer

    expect(shelf.looks).toBe(2)
  })
})

describe('the end', () => {
  test('stop aborts the running look, waits for it, and no other begins', async () => {
    const end = deferred<undefined>()
    let isToldToStop = false
    const shelf = watchShelf(async signal => {
      signal.addEventListener('abort', () => {
        isToldToStop = true
      })
      await end.promise
    })
    shelf.loop.lookSoon()
    let isStopped = false
    const stop = Promise.all([shelf.loop.stop(), shelf.loop.stop()]).then(() => {
      isStopped = true
    })
    shelf.loop.lookSoon()

    await shelf.clock.advance(0)
    expect([isToldToStop, isStopped]).toEqual([true, false])
    end.resolve(undefined)
    await stop
    shelf.loop.lookSoon()
    await shelf.clock.advance(60_000)

    expect(shelf.looks).toBe(1)
    await expect(shelf.loop.lookNow()).rejects.toMatchObject({ code: 'aborted' })
  })

  test('a failure caused by the stop is not reported', async () => {
    const shelf = watchShelf(
      signal =>
        new Promise<undefined>((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted')))),
    )

    shelf.loop.lookSoon()
    await shelf.loop.stop()

    expect(shelf.failures).toEqual([])
  })
})

test("a look runs in no caller's context, whichever caller requested it", async () => {
  const transaction = new AsyncLocalStorage<string>()
  const seen: unknown[] = []
  const shelf = watchShelf(async () => {
    await Promise.resolve()
    seen.push(transaction.getStore())
  })

  transaction.run('an open transaction', () => shelf.loop.lookSoon())
  await shelf.clock.advance(0)
  await shelf.clock.advance(1_000)

  expect(seen).toEqual([undefined, undefined])
})
