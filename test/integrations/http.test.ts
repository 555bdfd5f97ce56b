/** `rillflow/http` in each framework: live events, repeated requests, and errors as statuses. */
import { describe, expect, onTestFinished, test } from 'vitest'
import { DatabaseUnreachable, IdempotencyMismatch, Overloaded, VersionConflict } from '../../src/errors.ts'
import { errorResponse, eventStream, idempotencyKey, nodeListener } from '../../src/integrations/http.ts'
import { frameworks } from '../support/frameworks/frameworks.ts'
import { openShop, placed, shipped } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

interface Message {
  readonly id: string
  readonly data: { type: string; stream: string; position: number } | undefined
}

/** Server-sent events as a browser reads them. */
async function listen(url: string, lastEventId?: string) {
  const controller = new AbortController()
  onTestFinished(() => controller.abort())
  const headers: Record<string, string> = lastEventId === undefined ? {} : { 'last-event-id': lastEventId }
  const response = await fetch(url, { headers, signal: controller.signal })
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  const next = async (): Promise<Message> => {
    for (;;) {
      const end = text.indexOf('\n\n')
      if (end < 0) {
        const { value, done } = await reader.read()
        if (done) throw new Error('The stream has ended.')
        text += value
        continue
      }
      const lines = text.slice(0, end).split('\n')
      text = text.slice(end + 2)
      const field = (name: string) => lines.find(line => line.startsWith(`${name}: `))?.slice(name.length + 2)
      const data = field('data')
      const id = field('id')
      if (id !== undefined) return { id, data: data === undefined ? undefined : JSON.parse(data) }
    }
  }
  return { response, next, leave: () => controller.abort() }
}

describe.each(frameworks)('in $name', ({ mount }) => {
  test('a client gets events as they come, and after a break those that it has missed', async () => {
    const { store } = await openShop()
    await store.events.append('order-1', placed())
    const { url } = await mount('/live', request => eventStream(store, request))

    const first = await listen(url)
    const { id: begin } = await first.next()
    await store.events.append('order-2', placed())
    const { id, data } = await first.next()
    first.leave()
    await store.events.append('order-3', placed())
    await store.events.append('order-4', placed())
    const second = await listen(url, id)
    await second.next()
    const [third, fourth] = [await second.next(), await second.next()]

    expect(first.response.headers.get('content-type')).toBe('text/event-stream')
    expect(begin).toBe('1')
    expect(data).toMatchObject({ type: 'OrderPlaced', stream: 'order-2', position: 2 })
    expect([third.data?.stream, fourth.data?.stream]).toEqual(['order-3', 'order-4'])
  })

  test('a request that is sent again has the first outcome, and a lost race is answered by 409', async () => {
    const { store } = await openShop()
    const { url } = await mount('/orders', async request => {
      try {
        const options = { idempotencyKey: idempotencyKey(request), expected: 'empty' } as const
        const { note } = (await request.json()) as { note: string }
        return Response.json(await store.events.append('order-1', placed(5, { data: { total: 5, note } }), options))
      } catch (error) {
        return errorResponse(error)
      }
    })
    const post = (key: string, note: string) => {
      const headers = { 'content-type': 'application/json', 'idempotency-key': key }
      return fetch(`${url}/1`, { method: 'POST', body: JSON.stringify({ note }), headers })
    }

    const first = (await (await post('"k-1"', 'a')).json()) as { position: number }
    const repeated = await (await post('k-1', 'a')).json()
    const other = await post('k-1', 'b')
    const late = await post('k-2', 'a')

    expect(repeated).toMatchObject({ position: first.position, repeated: true })
    expect(other.status).toBe(409)
    expect(late.status).toBe(409)
    expect(await late.json()).toMatchObject({
      error: { code: 'version_conflict', data: { actual: 1 } },
    })
    expect(await store.events.head()).toBe(1)
  })

  test('the sources of a client that leaves are closed', async () => {
    const { store } = await openShop()
    let ended = 0
    const events = {
      ...store.events,
      tail: (options: Parameters<typeof store.events.tail>[0]) => {
        options!.signal!.addEventListener('abort', () => ended++)
        return store.events.tail(options)
      },
    } as typeof store.events
    const { url } = await mount('/live', request => eventStream({ events }, request))
    const client = await listen(url)
    await client.next()

    client.leave()

    await waitUntil(() => ended === 1)
  })
})

test('a client sees what `show` gives of events of the types it may see', async () => {
  const { store } = await openShop()
  const { mount } = frameworks[0]!
  const { url } = await mount('/live', request =>
    eventStream(store, request, { from: 'start', types: ['OrderShipped'], show: event => event.data.parcel }),
  )
  await store.events.append('order-1', [placed(), shipped('p-1'), shipped('p-2')])

  const { next } = await listen(`${url}?after=0`)

  expect(await next()).toEqual({ id: '0', data: undefined })
  expect((await next()).data).toBe('p-1')
  expect((await next()).data).toBe('p-2')
})

test('a client whose last event is beyond the head continues at the head', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())
  const { url } = await frameworks[0]!.mount('/live', request => eventStream(store, request))

  const { next } = await listen(url, '900')
  await next()
  await store.events.append('order-2', placed())

  expect((await next()).data?.stream).toBe('order-2')
})

test('a Last-Event-ID that names no position is refused', async () => {
  const { store } = await openShop()
  const request = new Request('http://shop/live', { headers: { 'last-event-id': 'e1.a2' } })

  await expect(eventStream(store, request)).rejects.toMatchObject({ code: 'invalid_option', option: 'Last-Event-ID' })
})

test.each([
  [new VersionConflict({ stream: 'order-1', expected: 1, actual: 2 }), 409, 'version_conflict'],
  [new IdempotencyMismatch({ key: 'k', reason: 'other content' } as never), 409, 'idempotency_mismatch'],
  [new Overloaded({ queue: 'append', limit: 1 }), 429, 'overloaded'],
])('an error has its status: %s', async (error, status, code) => {
  const response = errorResponse(error)

  expect(response.status).toBe(status)
  expect(await response.json()).toMatchObject({ error: { code, message: error.message } })
})

test('a failure of the server is answered without what only its operators may know', async () => {
  const error = new DatabaseUnreachable({ address: 'db.internal:5432', reason: 'refused' } as never)

  const response = errorResponse(error)

  expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1'])
  expect(await response.text()).not.toContain('db.internal')
})

test('an error of the program is thrown on', () => {
  expect(() => errorResponse(new RangeError('no such cart'))).toThrow(RangeError)
})

test.each(['', ' ', 'x'.repeat(256), 'ключ'])('the key %j is refused', given => {
  expect(() => idempotencyKey({ headers: { 'idempotency-key': given } })).toThrow('1 to 255 printable')
})

test('a request without the header has no key', () => {
  expect(idempotencyKey(new Request('http://shop'))).toBeUndefined()
  expect(typeof nodeListener(() => new Response())).toBe('function')
})
