import { expect, test } from 'vitest'
import { deferred, onAbort } from '../../src/core/abort.ts'
import { openServices, type ServiceDefinition } from '../../src/core/service.ts'
import { manualClock } from './manual-clock.ts'

/** A bakery notes what happens to it. It bakes until `bread` is ready or it is told to leave at once. */
function bakery(options: Partial<ServiceDefinition> = {}) {
  const notes: string[] = []
  const bread = deferred<void>()
  const definition: ServiceDefinition = {
    async start() {
      notes.push('open')
    },
    async stop(cutOff) {
      notes.push('closing')
      await Promise.race([bread.promise, new Promise<void>(resolve => onAbort(cutOff, resolve))])
      notes.push(cutOff.aborted ? 'left the bread' : 'sold the bread')
    },
    timeoutMs: 30_000,
    ...options,
  }
  return { notes, bread, definition }
}

test('a service runs from the end of its start to the end of its stop, and is stopped once', async () => {
  const { notes, bread, definition } = bakery()
  const services = openServices(manualClock())

  const service = await services.start(definition)
  const stops = [service.stop(), service.stop(), service[Symbol.asyncDispose]()]
  await new Promise(setImmediate)
  expect(service.isRunning).toBe(true)
  bread.resolve()
  await Promise.all(stops)
  await service.stop()

  expect(service.isRunning).toBe(false)
  expect(notes).toEqual(['open', 'closing', 'sold the bread'])
})

test('running work is cut off after timeoutMs; the shortest of all calls counts', async () => {
  const clock = manualClock()
  const { notes, definition } = bakery()
  const service = await openServices(clock).start(definition)

  const stops = [service.stop({ timeoutMs: 10_000 }), service.stop({ timeoutMs: 500 }), service.stop()]
  await clock.advance(499)
  expect(notes).toEqual(['open', 'closing'])
  await clock.advance(1)
  await Promise.all(stops)

  expect(notes.at(-1)).toBe('left the bread')
  expect(clock.pending()).toEqual([])
})

test('a start that fails is cleaned up, and rejects with its own reason', async () => {
  const services = openServices(manualClock())
  const { notes, definition } = bakery({
    async start() {
      throw new Error('the oven is cold')
    },
  })

  await expect(services.start(definition)).rejects.toThrow('the oven is cold')
  await services.close()

  expect(notes).toEqual(['closing', 'left the bread'])
})

test('closing the store stops every service, also one that is just starting, and refuses new ones', async () => {
  const services = openServices(manualClock())
  const open = bakery()
  const opening = bakery({ start: stopping => new Promise(resolve => onAbort(stopping, resolve)) })
  await services.start(open.definition)
  const starting = services.start(opening.definition)

  open.bread.resolve()
  opening.bread.resolve()
  await Promise.all([services.close(), expect(starting).rejects.toMatchObject({ code: 'store_closed' })])

  expect(open.notes.at(-1)).toBe('sold the bread')
  expect(opening.notes).toEqual(['closing', 'sold the bread'])
  await expect(services.start(bakery().definition)).rejects.toMatchObject({ code: 'store_closed' })
})

test('a service that fails to stop does not keep the others running, and the store reports it', async () => {
  const services = openServices(manualClock())
  const open = bakery()
  open.bread.resolve()
  await services.start({
    start: async () => {},
    async stop() {
      throw new Error('the door is stuck')
    },
    timeoutMs: 0,
  })
  const service = await services.start(open.definition)

  await expect(services.close()).rejects.toThrow('the door is stuck')

  expect(service.isRunning).toBe(false)
})
