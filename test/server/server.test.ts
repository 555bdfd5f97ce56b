import { request } from 'node:http'
import { connect } from 'node:net'
import { expect, test } from 'vitest'
import { fakeClock } from '../../src/testing/fakes.ts'
import { openShop, outcome } from '../support/shop.ts'

test('it listens only on this machine by default, and closes with the store', async () => {
  const { store } = await openShop()

  const server = await store.server({ port: 0 })
  const live = await fetch(`${server.url}/health/live`)
  const body = await live.json()
  await store.close()

  expect(server.url).toBe(`http://127.0.0.1:${server.port}`)
  expect([live.status, body]).toEqual([200, { status: 'live' }])
  await expect(fetch(`${server.url}/health/live`)).rejects.toThrow()
})

test('beyond loopback it refuses to start without a token, and names the option', async () => {
  const { store } = await openShop()

  const { error } = await outcome(store.server({ port: 0, host: '0.0.0.0' }))

  expect(error).toMatchObject({ code: 'invalid_option', option: 'token' })
})

test('health needs no token on any bind and carries no data; metrics and unknown paths need it', async () => {
  // With a clock that stands still no answer is late.
  const { store } = await openShop({ clock: fakeClock() })
  const { port } = await store.server({ port: 0, host: '0.0.0.0', token: 'open-sesame' })
  const get = async (path: string, token?: string): Promise<[number, string]> => {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers })
    return [response.status, await response.text()]
  }

  const ready = await get('/health/ready')
  const without = await get('/metrics')
  const wrong = await get('/metrics', 'open-sesamf')
  const longer = await get('/metrics', 'open-sesame-and-more')
  const right = await get('/metrics', 'open-sesame')
  const elsewhere = await get('/elsewhere')
  const nowhere = await get('/elsewhere', 'open-sesame')

  expect(ready).toEqual([200, '{"status":"ready"}\n'])
  expect([without[0], wrong[0], longer[0], right[0], elsewhere[0], nowhere[0]]).toEqual([401, 401, 401, 200, 401, 404])
})

test('a configured token is also required on loopback', async () => {
  const { store } = await openShop()
  const { url } = await store.server({ port: 0, token: 'open-sesame' })

  const { status } = await fetch(`${url}/metrics`)

  expect(status).toBe(401)
})

test('on loopback without a token only host names of this machine are answered, so that no web page can read it', async () => {
  const { store } = await openShop()
  const { port } = await store.server({ port: 0 })
  const statusFor = (host: string): Promise<number | undefined> =>
    new Promise((resolve, reject) => {
      const sent = request({ port, host: '127.0.0.1', path: '/metrics', headers: { host } }, response => {
        response.resume()
        resolve(response.statusCode)
      })
      sent.on('error', reject).end()
    })

  expect(await statusFor('attacker.example')).toBe(403)
  expect(await statusFor(`localhost:${port}`)).toBe(200)
})

test('only small requests are answered', async () => {
  const { store } = await openShop()
  const { url } = await store.server({ port: 0 })

  const posted = await fetch(`${url}/metrics`, { method: 'POST', body: 'x' })
  const headed = await fetch(`${url}/health/live`, { method: 'HEAD' })
  const huge = await fetch(`${url}/health/live`, { headers: { 'x-much': 'x'.repeat(20_000) } })

  expect(posted.status).toBe(405)
  expect([headed.status, await headed.text()]).toEqual([200, ''])
  expect(huge.status).toBe(431)
})

test('an unfinished request times out', { timeout: 60_000 }, async () => {
  const { store } = await openShop()
  const { port } = await store.server({ port: 0 })
  const socket = connect(port, '127.0.0.1').on('error', () => {})
  let answer = ''
  socket.on('data', chunk => {
    answer += chunk
  })
  const ended = new Promise<void>(resolve => socket.on('close', () => resolve()))

  socket.write('GET /health/live HTTP/1.1\r\nhost: localhost\r\nx-slow: ')
  await ended

  expect(answer).toContain('408 Request Timeout')
})

test('a hundred patient clients, with half a request or none, do not keep a probe out', async () => {
  const { store } = await openShop()
  const { port, url } = await store.server({ port: 0 })
  const sockets = Array.from({ length: 120 }, (_, n) => {
    const socket = connect(port, '127.0.0.1').on('error', () => {})
    if (n % 2 === 0) socket.write('GET /health/live HTTP/1.1\r\nhost: localhost\r\nx-slow: ')
    return socket
  })
  await Promise.all(sockets.map(socket => new Promise(resolve => socket.once('connect', resolve))))

  const answers = await Promise.all([1, 2, 3].map(() => fetch(`${url}/health/live`)))

  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200])
  for (const socket of sockets) socket.destroy()
})

test('an invalid option is refused: a port in use, a token that no header can carry', async () => {
  const { store } = await openShop()
  const { port } = await store.server({ port: 0 })

  const taken = await outcome(store.server({ port }))
  const beyond = await outcome(store.server({ port: 65_536 }))
  const elsewhere = await outcome(store.server({ port: 0, host: '192.0.2.1', token: 'secret' }))
  const unsendable = await outcome(store.server({ port: 0, token: 'two words' }))
  const empty = await outcome(store.server({ port: 0, token: '' }))

  expect(taken.error).toMatchObject({ code: 'invalid_option', option: 'port' })
  expect(beyond.error).toMatchObject({ code: 'invalid_option', option: 'port' })
  expect(elsewhere.error).toMatchObject({ code: 'invalid_option', option: 'host' })
  expect(unsendable.error).toMatchObject({ code: 'invalid_option', option: 'token' })
  expect(empty.error).toMatchObject({ code: 'invalid_option', option: 'token' })
})

test('closing does not wait for open connections', async () => {
  const { store } = await openShop()
  const server = await store.server({ port: 0 })
  const socket = connect(server.port, '127.0.0.1')
  const ended = new Promise<void>(resolve => socket.on('close', () => resolve()).on('error', () => {}))
  await new Promise<void>(resolve => socket.once('connect', resolve))

  await server.close()
  await server.close()

  await ended
})
