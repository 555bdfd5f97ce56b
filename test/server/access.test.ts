import { createServer, request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'
import { expect, onTestFinished, test } from 'vitest'
import { type Role, roles } from '../../src/server/api/route.ts'
import { routes } from '../../src/server/api/routes/routes.ts'
import { senderOf } from '../../src/server/app.ts'
import { openShop, outcome } from '../support/shop.ts'
import { serve } from './api.ts'

const places: Record<string, string> = { id: '01936f1c-5d0e-7c11-a4e2-51a6e3c0a001', position: '1' }

function pathOf(path: string): string {
  return path.replace(/:(\w+)/g, (_, name: string) => places[name] ?? `some-${name}`)
}

test('every route refuses a role below its own, and none refuses its own role', async () => {
  const { store } = await openShop()
  const authorize = (request: Request) => {
    const role = request.headers.get('x-role') as Role | null
    return role === null ? undefined : { name: `the ${role}`, role }
  }
  const { send } = await serve(store, { authorize, console: true })
  const found: string[] = []

  for (const { key, method, path, role } of routes) {
    if (role === 'open' || key === 'GET /live') continue
    for (const given of [undefined, ...roles]) {
      // A body that is refused after the role was checked: nothing is changed.
      const { status } = await send(
        method,
        pathOf(path),
        { nothing: 1 },
        given === undefined ? {} : { 'x-role': given },
      )
      const isRefused = given === undefined ? status === 401 : status === 403
      const isRight = given === undefined || roles.indexOf(given) < roles.indexOf(role)
      if (isRefused !== isRight) found.push(`${key} as ${given}: ${status}`)
    }
  }

  expect(found).toEqual([])
})

test('without a token the console only reads on loopback; with a token it operates; more has to be said', async () => {
  const { store } = await openShop()
  const bearer = { authorization: 'Bearer open-sesame' }

  const plain = await serve(store, { console: true })
  const withToken = await serve(store, { console: true, token: 'open-sesame' })
  const admin = await serve(store, { console: { access: 'admin' }, token: 'open-sesame' })

  expect((await plain.get('/')).body.role).toBe('read')
  expect((await plain.send('POST', '/consumers/orders/pause')).status).toBe(403)
  expect((await withToken.get('/')).status).toBe(401)
  expect((await withToken.get('/', bearer)).body.role).toBe('operate')
  expect((await admin.get('/', bearer)).body.role).toBe('admin')
})

test('without the option console there is no API and no page', async () => {
  const { store } = await openShop()
  const { url } = await store.server({ port: 0 })

  const statuses = await Promise.all(
    ['/api/v1', '/api/v1/events', '/', '/events'].map(async path => (await fetch(`${url}${path}`)).status),
  )

  expect(statuses).toEqual([404, 404, 404, 404])
})

test('a request of another page is refused, and one of the same origin passes', async () => {
  const { store } = await openShop()
  const { url, send } = await serve(store)
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  const archive = (headers: Record<string, string>) => send('POST', '/streams/order-1/archive', {}, headers)
  const json = { 'content-type': 'application/json' }

  const statuses = [
    (await archive({ 'sec-fetch-site': 'cross-site' })).status,
    (await archive({ 'sec-fetch-site': 'same-site' })).status,
    (await archive({ origin: 'http://attacker.example' })).status,
    (await archive({ origin: 'null' })).status,
    (await fetch(`${url}/api/v1/streams/order-1/archive`, { method: 'POST', headers: json, body: '{}' })).status,
    (await archive({ 'content-type': 'text/plain' })).status,
    (await send('GET', '/events', undefined, { 'sec-fetch-site': 'cross-site' })).status,
    (await archive({ 'sec-fetch-site': 'same-origin' })).status,
  ]

  expect(statuses).toEqual([403, 403, 403, 403, 403, 415, 403, 200])
})

test('a name that was made to point here is refused, unless it is one of the hosts', async () => {
  const { store } = await openShop()
  const { port } = await store.server({ port: 0, console: true, hosts: ['ops.shop.example'] })
  const statusFor = (host: string): Promise<number | undefined> =>
    new Promise((resolve, reject) => {
      const sent = httpRequest({ port, host: '127.0.0.1', path: '/api/v1', headers: { host } }, response => {
        response.resume()
        resolve(response.statusCode)
      })
      sent.on('error', reject).end()
    })

  expect(await statusFor('attacker.example')).toBe(403)
  expect(await statusFor(`ops.shop.example:${port}`)).toBe(200)
  expect(await statusFor(`localhost:${port}`)).toBe(200)
})

test('a token is exchanged for a cookie that scripts cannot read and that ends with the token', async () => {
  const { store } = await openShop()
  const first = await serve(store, { console: true, token: 'open-sesame' })
  const second = await serve(store, { console: true, token: 'open-barley' })

  const wrong = await first.send('POST', '/session', { token: 'open-sesamf' })
  const right = await first.send('POST', '/session', { token: 'open-sesame', name: 'Ada' })
  const set = right.headers.get('set-cookie')!
  const cookie = set.split(';')[0]!
  const here = await first.get('/', { cookie })
  const elsewhere = await second.get('/', { cookie })
  const forged = await first.get('/', { cookie: cookie.replace(/=(..)/, '=ZZ') })
  const over = await first.send('DELETE', '/session', undefined, { cookie })

  expect([wrong.status, right.status, elsewhere.status, forged.status]).toEqual([401, 200, 401, 401])
  expect(set).toMatch(/; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/)
  expect(here.body).toMatchObject({ name: 'Ada', role: 'operate' })
  expect(over.headers.get('set-cookie')).toContain('Max-Age=0')
})

test('an address has five wrong tokens a minute', async () => {
  const { store } = await openShop()
  const { send } = await serve(store, { console: true, token: 'open-sesame' })

  const statuses: number[] = []
  for (let attempt = 0; attempt < 6; attempt++)
    statuses.push((await send('POST', '/session', { token: `guess-${attempt}` })).status)
  const right = await send('POST', '/session', { token: 'open-sesame' })

  expect(statuses).toEqual([401, 401, 401, 401, 401, 429])
  expect(right.status).toBe(429)
  expect(Number(right.headers.get('retry-after'))).toBeGreaterThan(0)
})

test('every action is in the audit under the name of its sender, also if it was refused', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  const authorize = () => ({ name: 'Ada', role: 'operate' as const })
  const { send } = await serve(store, { authorize, console: true })

  await send('POST', '/streams/order-1/archive', { reason: 'old' })
  await send('POST', '/streams/order-1/tombstone', { confirm: 'order-1' })
  await send('POST', '/streams/order-2/append', { type: 'OrderPlaced', data: { total: 2 } })

  const { items } = await store.audit.list()
  expect(items.map(({ actor, action, target, outcome }) => [actor, action, target, outcome])).toEqual([
    ['Ada', 'events.append', 'order-2', 'done'],
    ['Ada', 'http.refused', 'POST /streams/:stream/tombstone', 'failed'],
    ['Ada', 'streams.archive', 'order-1', 'done'],
  ])
})

test('private data is hidden in lists, in one event, in the raw text and in errors', async () => {
  const { store } = await openShop()
  const note = 'card 4111'
  const { eventIds } = await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1, note } })
  const { get } = await serve(store, { console: { access: 'admin', redact: { paths: ['data.note'] } } })

  const texts = await Promise.all(
    ['/events', `/events/${eventIds[0]}?raw=1`, '/streams/order-1/events', '/events/at/1'].map(async path =>
      JSON.stringify((await get(path)).body),
    ),
  )

  for (const text of texts) {
    expect(text).toContain('[hidden]')
    expect(text).not.toContain('4111')
  }
})

test('a function that fails to redact hides everything, and a path that can hide nothing is refused', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  const events = () => {
    throw new Error('no')
  }
  const { get } = await serve(store, { console: { redact: { events } } })

  const { body } = await get('/events')
  const wrong = await outcome(store.server({ port: 0, console: { redact: { paths: ['card'] } } }))

  expect(body.items[0].data).toBe('[hidden]')
  expect(wrong.error).toMatchObject({ code: 'invalid_option', option: 'redact.paths' })
})

test('pages carry a policy without exceptions, and no data of the store', async () => {
  const { store } = await openShop()
  const { url } = await serve(store, { token: 'open-sesame', console: true })

  const page = await fetch(`${url}/events/some/deep/link`)
  const asset = await fetch(`${url}/assets/none.js`)

  const policy = page.headers.get('content-security-policy')
  expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'")
  expect(policy).not.toMatch(/unsafe|\*/)
  expect(page.headers.get('cache-control')).toBe('no-store')
  expect(asset.status).toBe(404)
})

test('a store for a framework needs authorize or a token, and works below its base', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })

  const open = await outcome(store.http({ base: '/admin/rillflow', console: true }))
  const handler = await store.http({ base: '/admin/rillflow', authorize: () => ({ name: 'Ada', role: 'read' }) })
  const paths = ['/admin/rillflow/api/v1/events', '/api/v1/events', '/admin/rillflow/health/live']
  const statuses = await Promise.all(
    paths.map(async path => (await handler(new Request(`http://shop.example${path}`))).status),
  )

  expect(open.error).toMatchObject({ code: 'invalid_option', option: 'authorize' })
  expect(statuses).toEqual([200, 200, 200])
})

test('the handler is mounted in Hono, and in a server of node:http as Express and Fastify call it', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  const base = '/admin/rillflow'
  const handler = await store.http({ base, console: true, authorize: () => ({ name: 'Ada', role: 'operate' }) })
  const listener = getRequestListener(handler, { overrideGlobalObjects: false })
  const server = createServer((incoming, outgoing) => {
    // As Express does it: the part of the path that it was mounted at is not in the url.
    incoming.url = incoming.url!.slice(base.length)
    void listener(incoming, outgoing)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}${base}/api/v1`

  const inHono = await new Hono().mount(base, handler).request(`${base}/api/v1/events`)
  const listed = await fetch(`${url}/events`)
  const archived = await fetch(`${url}/streams/order-1/archive`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', origin: new URL(url).origin },
    body: '{"reason":"old"}',
  })

  expect([inHono.status, listed.status, archived.status]).toEqual([200, 200, 200])
  expect(await store.streams.describe('order-1')).toMatchObject({ state: 'archived', reason: 'old' })
})

test('the address and the prefix that a proxy tells are believed only of a trusted proxy', () => {
  const headers = { 'x-forwarded-for': '203.0.113.9, 198.51.100.7', 'x-forwarded-prefix': '/ops/' }
  const asked = new Request('http://shop.example/events', { headers })
  const hostile = new Request('http://shop.example/events', { headers: { 'x-forwarded-prefix': '/"><script>' } })

  expect(senderOf(asked, '::ffff:10.0.0.2', ['10.0.0.2'])).toEqual({ address: '198.51.100.7', prefix: '/ops' })
  expect(senderOf(asked, '10.0.0.3', ['10.0.0.2'])).toEqual({ address: '10.0.0.3', prefix: '' })
  expect(senderOf(hostile, '10.0.0.2', ['10.0.0.2'])).toEqual({ address: '10.0.0.2', prefix: '' })
})
