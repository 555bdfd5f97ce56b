import { expect, test } from 'vitest'
import { StoreClosed } from '../../src/core/errors.ts'
import { formLine } from '../../src/database/pglite/turns.ts'

test('turns are given one at a time, in the order of the requests', async () => {
  const line = formLine('shop', 100)
  const log: number[] = []
  let inside = 0

  await Promise.all(
    [1, 2, 3, 4].map(async customer => {
      const leave = await line.enter()
      expect(++inside).toBe(1)
      await new Promise(setImmediate)
      log.push(customer)
      inside--
      leave()
    }),
  )

  expect(log).toEqual([1, 2, 3, 4])
  expect(line.isFree).toBe(true)
})

test('leaving twice does not end the next turn', async () => {
  const line = formLine('shop', 100)
  const leave = await line.enter()
  const next = line.enter()

  leave()
  leave()
  await next

  expect(line.isFree).toBe(false)
})

test('a full queue refuses further requests', async () => {
  const line = formLine('shop', 1)
  const leave = await line.enter()
  const waiting = line.enter()

  await expect(line.enter()).rejects.toMatchObject({ code: 'overloaded', queue: 'shop', limit: 1, retryable: true })

  leave()
  const leaveToo = await waiting
  leaveToo()
  await expect(line.enter()).resolves.toBeTypeOf('function')
})

test('a request that is aborted leaves the queue, and the others move up', async () => {
  const line = formLine('shop', 100)
  const controller = new AbortController()
  const leave = await line.enter()
  const impatient = line.enter(controller.signal)
  const patient = line.enter()

  controller.abort('too slow')

  await expect(impatient).rejects.toMatchObject({ code: 'aborted', cause: 'too slow' })
  expect(line.waiting).toBe(1)
  leave()
  await expect(patient).resolves.toBeTypeOf('function')
})

test('a closed queue serves the requests in it and refuses new ones', async () => {
  const line = formLine('shop', 100)
  const leave = await line.enter()
  const waiting = line.enter()

  line.shut(() => new StoreClosed({}))

  await expect(line.enter()).rejects.toMatchObject({ code: 'store_closed' })
  leave()
  await expect(waiting).resolves.toBeTypeOf('function')
})

test('the queue is empty when the last turn has ended, also when all waiting requests were refused', async () => {
  const line = formLine('shop', 100)
  const leave = await line.enter()
  const waiting = line.enter()
  let isEmpty = false
  const emptied = line.empty().then(() => {
    isEmpty = true
  })

  line.dismiss(() => new StoreClosed({}))
  await expect(waiting).rejects.toMatchObject({ code: 'store_closed' })
  expect(isEmpty).toBe(false)
  leave()

  await emptied
  await line.empty()
})
