import { expect, test } from 'vitest'
import { StoreClosed } from '../../src/core/errors.ts'
import { openTurns } from '../../src/database/pglite/turns.ts'

test('turns are given one at a time, in the order of the requests', async () => {
  const turns = openTurns('shop', 100)
  const log: number[] = []
  let inside = 0

  await Promise.all(
    [1, 2, 3, 4].map(async customer => {
      const leave = await turns.take()
      expect(++inside).toBe(1)
      await new Promise(setImmediate)
      log.push(customer)
      inside--
      leave()
    }),
  )

  expect(log).toEqual([1, 2, 3, 4])
  expect(turns.isFree).toBe(true)
})

test('leaving twice does not end the next turn', async () => {
  const turns = openTurns('shop', 100)
  const leave = await turns.take()
  const next = turns.take()

  leave()
  leave()
  await next

  expect(turns.isFree).toBe(false)
})

test('a full queue refuses further requests', async () => {
  const turns = openTurns('shop', 1)
  const leave = await turns.take()
  const waiting = turns.take()

  await expect(turns.take()).rejects.toMatchObject({ code: 'overloaded', queue: 'shop', limit: 1, retryable: true })

  leave()
  const leaveToo = await waiting
  leaveToo()
  await expect(turns.take()).resolves.toBeTypeOf('function')
})

test('a request that is aborted leaves the queue, and the others move up', async () => {
  const turns = openTurns('shop', 100)
  const controller = new AbortController()
  const leave = await turns.take()
  const impatient = turns.take(controller.signal)
  const patient = turns.take()

  controller.abort('too slow')

  await expect(impatient).rejects.toMatchObject({ code: 'aborted', cause: 'too slow' })
  expect(turns.waiting).toBe(1)
  leave()
  await expect(patient).resolves.toBeTypeOf('function')
})

test('a closed queue serves the requests in it and refuses new ones', async () => {
  const turns = openTurns('shop', 100)
  const leave = await turns.take()
  const waiting = turns.take()

  turns.refuseNew(() => new StoreClosed({}))

  await expect(turns.take()).rejects.toMatchObject({ code: 'store_closed' })
  leave()
  await expect(waiting).resolves.toBeTypeOf('function')
})

test('the queue is empty when the last turn has ended, also when all waiting requests were refused', async () => {
  const turns = openTurns('shop', 100)
  const leave = await turns.take()
  const waiting = turns.take()
  let isEmpty = false
  const emptied = turns.whenFree().then(() => {
    isEmpty = true
  })

  turns.rejectWaiting(() => new StoreClosed({}))
  await expect(waiting).rejects.toMatchObject({ code: 'store_closed' })
  expect(isEmpty).toBe(false)
  leave()

  await emptied
  await turns.whenFree()
})
