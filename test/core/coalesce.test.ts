import { AsyncLocalStorage } from 'node:async_hooks'
import { describe, expect, test } from 'vitest'
import { type Deferred, deferred } from '../../src/core/abort.ts'
import { type CoalesceOptions, coalesce } from '../../src/core/coalesce.ts'
import { manualClock } from './manual-clock.ts'

const plenty = { count: 100, bytes: 1_000 }

/** A courier who carries parcels: each trip is one call, which ends when the test says so. A parcel is its address. */
function courier(options: Partial<CoalesceOptions<string, string>> = {}) {
  const trips: { parcels: readonly string[]; end: Deferred<readonly (string | Promise<string>)[]> }[] = []
  const clock = manualClock()
  const round = coalesce<string, string>({
    name: 'parcel',
    send(parcels) {
      const end = deferred<readonly (string | Promise<string>)[]>()
      trips.push({ parcels, end })
      return end.promise
    },
    maxBatch: plenty,
    maxQueued: plenty,
    clock,
    ...options,
  })
  /** The call ends in one turn of the event loop, and the next begins in the turn after it. */
  const turnOfTheLoop = async (): Promise<void> => {
    await clock.advance(0)
    await clock.advance(0)
  }
  return {
    ...{ round, trips, clock, turnOfTheLoop },
    /** Ends the latest trip well. */
    async deliver() {
      const { parcels, end } = trips.at(-1)!
      end.resolve(parcels.map(parcel => `${parcel} delivered`))
      await turnOfTheLoop()
    },
    async fail(error: Error) {
      trips.at(-1)!.end.reject(error)
      await turnOfTheLoop()
    },
    parcels: () => trips.map(trip => trip.parcels.join(' ')),
  }
}

describe('batches', () => {
  test('items submitted while a call runs go with the next call, and each has its own outcome', async () => {
    const { round, deliver, parcels, clock } = courier()

    const first = round.submit('oak')
    await clock.advance(0)
    const others = [round.submit('elm'), round.submit('ash')]
    await clock.advance(0)
    expect(parcels()).toEqual(['oak'])
    await deliver()
    await deliver()

    expect(await Promise.all([first, ...others])).toEqual(['oak delivered', 'elm delivered', 'ash delivered'])
    expect(parcels()).toEqual(['oak', 'elm ash'])
  })

  test('items submitted in one turn go together, and a single item goes immediately', async () => {
    const { round, deliver, parcels, clock } = courier()

    void round.submit('oak')
    void round.submit('elm')
    await clock.advance(0)
    expect(parcels()).toEqual(['oak elm'])
    await deliver()
    void round.submit('ash')
    await Promise.resolve()

    expect(parcels()).toEqual(['oak elm', 'ash'])
  })

  test('a batch ends at its limit in number or bytes; an item beyond the limit goes alone', async () => {
    const sizeOf = (parcel: string) => ({ count: 1, bytes: parcel.length })
    const { round, deliver, parcels, clock } = courier({ sizeOf, maxBatch: { count: 3, bytes: 8 } })

    for (const parcel of ['a', 'b', 'c', 'd', 'eeeeeee', 'fffffffffffff']) void round.submit(parcel)
    await clock.advance(0)
    for (let trip = 0; trip < 3; trip++) await deliver()

    expect(parcels()).toEqual(['a b c', 'd eeeeeee', 'fffffffffffff'])
  })

  test('the number of waiting items decides how many calls run at once', async () => {
    const maxBatch = { count: 2, bytes: 1_000 }
    const { round, parcels, clock } = courier({ maxBatch, maxCalls: queued => (queued >= 3 ? 2 : 1) })

    for (const parcel of ['a', 'b', 'c', 'd', 'e']) void round.submit(parcel)
    await clock.advance(0)

    expect(parcels()).toEqual(['a b', 'c d'])
  })
})

describe('keys', () => {
  /** A street is the first letter. */
  const keysOf = (parcel: string) => [parcel[0]!]

  test('items of one key may go together, keep their order, and are never in two calls', async () => {
    const { round, deliver, parcels, clock } = courier({ keysOf, maxCalls: () => 2 })

    void round.submit('a1')
    await clock.advance(0)
    for (const parcel of ['a2', 'b1', 'a3']) void round.submit(parcel)
    await clock.advance(0)
    expect(parcels()).toEqual(['a1', 'b1'])
    await deliver()

    expect(parcels()).toEqual(['a1', 'b1'])
  })

  test('an item that continues alone keeps its keys, and holds up no other item', async () => {
    const { round, trips, deliver, parcels, clock, turnOfTheLoop } = courier({ keysOf })
    const doorbell = deferred<string>()
    const answers = [round.submit('a1'), round.submit('b1')]
    await clock.advance(0)

    trips[0]!.end.resolve([doorbell.promise, 'b1 delivered'])
    expect(await answers[1]).toBe('b1 delivered')
    for (const parcel of ['a2', 'b2']) answers.push(round.submit(parcel))
    await clock.advance(0)
    await deliver()
    expect(parcels()).toEqual(['a1 b1', 'b2'])
    doorbell.resolve('a1 handed over')
    await turnOfTheLoop()
    await deliver()

    expect(await Promise.all(answers)).toEqual(['a1 handed over', 'b1 delivered', 'a2 delivered', 'b2 delivered'])
  })

  test('items that do not fit together go in the next batch, and later items with their keys wait for them', async () => {
    const fits = (parcel: string, batch: readonly string[]) => parcel.endsWith('!') === batch[0]!.endsWith('!')
    const { round, deliver, parcels, clock } = courier({ keysOf, fits })

    for (const parcel of ['a1', 'b1!', 'b2', 'c1']) void round.submit(parcel)
    await clock.advance(0)
    await deliver()
    await deliver()

    expect(parcels()).toEqual(['a1 c1', 'b1!', 'b2'])
  })
})

describe('failures', () => {
  test('one bad item fails alone: the batch is split until it is found', async () => {
    const sent: string[] = []
    const { round } = courier({
      async send(parcels) {
        sent.push(parcels.join(' '))
        if (parcels.includes('bad')) throw new Error('it leaks')
        return parcels
      },
    })

    const outcomes = await Promise.allSettled(['a', 'b', 'bad', 'c'].map(parcel => round.submit(parcel)))

    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled'])
    expect(sent).toEqual(['a b bad c', 'a b', 'bad c', 'bad', 'c'])
  })

  test('also after a split nothing overtakes an item with the same key that continues alone', async () => {
    const doorbell = deferred<string>()
    const sent: string[] = []
    const { round, turnOfTheLoop } = courier({
      keysOf: parcel => [parcel[0]!],
      async send(parcels) {
        sent.push(parcels.join(' '))
        if (parcels.includes('x')) throw new Error('it leaks')
        return parcels.map(parcel => (parcel === 'a1' ? doorbell.promise : parcel))
      },
    })
    const answers = Promise.allSettled(['a1', 'b1', 'a2', 'x'].map(parcel => round.submit(parcel)))

    await turnOfTheLoop()
    expect(sent).toEqual(['a1 b1 a2 x', 'a1 b1', 'x'])
    doorbell.resolve('a1')
    const statuses = (await answers).map(({ status }) => status)

    expect(sent.slice(3)).toEqual(['a2'])
    expect(statuses).toEqual(['fulfilled', 'fulfilled', 'fulfilled', 'rejected'])
  })

  test('the same batch is sent again after a wait if that can help, and fails if it cannot', async () => {
    const lost = new Error('the road is closed')
    const { round, fail, parcels, clock } = courier({
      afterFailure: (_, __, attempt) => (attempt < 3 ? { sendAgainInMs: 50 * attempt } : 'fail'),
    })
    const outcomes = Promise.allSettled([round.submit('a'), round.submit('b')])
    await clock.advance(0)

    await fail(lost)
    expect(clock.pending()).toEqual([50])
    await clock.advance(50)
    await fail(lost)
    await clock.advance(100)
    await fail(lost)

    expect(parcels()).toEqual(['a b', 'a b', 'a b'])
    expect((await outcomes).map(outcome => outcome.status === 'rejected' && outcome.reason)).toEqual([lost, lost])
  })

  test('a full queue refuses items, by number and by bytes, and never sends a refused item', async () => {
    const sizeOf = (parcel: string) => ({ count: 1, bytes: parcel.length })
    const { round, parcels, clock } = courier({ sizeOf, maxQueued: { count: 2, bytes: 10 } })
    void round.submit('under way')
    await clock.advance(0)

    void round.submit('heavy')
    await expect(round.submit('heavier')).rejects.toMatchObject({ code: 'overloaded', queue: 'parcel (in bytes)' })
    void round.submit('b')
    await expect(round.submit('c')).rejects.toMatchObject({ code: 'overloaded', limit: 2 })

    expect(parcels()).toEqual(['under way'])
    expect(round.size).toBe(3)
  })
})

describe('the end', () => {
  test('an abort removes an item that was not sent; one that was sent keeps its keys', async () => {
    const change = new AbortController()
    const { round, deliver, parcels, clock } = courier({
      keysOf: () => ['one street'],
      outcomeUnknown: parcel => new Error(`nobody knows about ${parcel}`),
    })
    const sent = round.submit('a', { signal: change.signal })
    await clock.advance(0)
    const waiting = round.submit('b', { signal: change.signal })
    void round.submit('c')
    const rejections = [
      expect(sent).rejects.toThrow('nobody knows about a'),
      expect(waiting).rejects.toMatchObject({ code: 'aborted' }),
    ]

    change.abort()
    await Promise.all(rejections)
    expect(parcels()).toEqual(['a'])
    await deliver()

    expect(parcels()).toEqual(['a', 'c'])
  })

  test('close refuses new items and waits for the others', async () => {
    const { round, deliver, clock } = courier()
    const last = round.submit('a')
    await clock.advance(0)
    let isClosed = false
    const closing = round.close(new Error('the courier went home')).then(() => {
      isClosed = true
    })

    await expect(round.submit('b')).rejects.toThrow('the courier went home')
    expect(isClosed).toBe(false)
    await deliver()
    await closing

    expect(await last).toBe('a delivered')
    expect(round.size).toBe(0)
  })
})

test("a batch runs in no caller's context, whichever caller submitted its items", async () => {
  const transaction = new AsyncLocalStorage<string>()
  const seen: unknown[] = []
  const { round } = courier({
    async send(parcels) {
      seen.push(transaction.getStore())
      return parcels
    },
  })

  await transaction.run('an open transaction', () => round.submit('a'))

  expect(seen).toEqual([undefined])
})
