import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { type Secret, withDefaultTls } from '../../src/database/postgres/secured.ts'
import { openStore } from '../../src/store.ts'
import { postgresUrl } from '../support/engines.ts'
import { onServer, openShop, outcome, placed } from '../support/shop.ts'

test('TLS is on by default for a server on another machine, unless the url or the option says otherwise', () => {
  const tlsOf = (url: string, ssl?: boolean): unknown => withDefaultTls({ url, ssl }).ssl

  for (const host of ['db', 'db.internal', '10.0.0.7', '[fd00::7]', 'localhost.example.com'])
    expect([host, tlsOf(`postgres://ada@${host}/shop`)]).toEqual([host, true])
  for (const host of ['localhost', '127.0.0.1', '127.8.8.8', '[::1]', 'db.localhost', '%2Frun%2Fpostgresql', ''])
    expect([host, tlsOf(`postgres://ada@${host}/shop`)]).toEqual([host, undefined])
  expect(tlsOf('postgres:///shop?host=/run/postgresql')).toBeUndefined()
  expect(tlsOf('postgres:///shop?host=db')).toBe(true)
  expect(tlsOf('postgres://db/shop?sslmode=disable')).toBeUndefined()
  expect(tlsOf('postgres://db/shop?sslmode=verify-full')).toBeUndefined()
  expect(tlsOf('postgres://db/shop', false)).toBe(false)
})

test.runIf(onServer)(
  'a password comes from a text, the environment, a file or a function, and is asked for each connection',
  async () => {
    const { store, schema } = await openShop()
    await store.events.append('order-1', placed())
    const url = new URL(postgresUrl())
    const password = decodeURIComponent(url.password)
    url.password = ''
    const folder = await mkdtemp(join(tmpdir(), 'rillflow-secret-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    await writeFile(join(folder, 'password'), `${password}\n`)
    process.env.SHOP_PASSWORD = password
    let asked = 0
    const secrets: Secret[] = [
      password,
      { env: 'SHOP_PASSWORD' },
      { file: join(folder, 'password') },
      async () => {
        asked++
        return password
      },
    ]

    for (const secret of secrets) {
      await using other = await openStore({ url: url.href, schema, password: secret })
      await Promise.all([1, 2, 3].map(() => other.events.read('order-1').toArray()))
      const [first] = await other.events
        .tail({ from: 'start' })
        [Symbol.asyncIterator]()
        .next()
        .then(({ value }) => [value])
      expect(first).toMatchObject({ type: 'OrderPlaced' })
    }

    expect(asked).toBeGreaterThan(1)
    const wrong = await outcome(openStore({ url: url.href, schema, password: () => 'wrong' }))
    expect(wrong.error).toMatchObject({ code: 'authentication_failed' })
    const missing = await outcome(openStore({ url: url.href, schema, password: { env: 'NO_SUCH_PASSWORD' } }))
    expect((missing.error as Error).message).toContain('NO_SUCH_PASSWORD')
    const odd = await outcome(openStore({ url: url.href, schema, password: { env: 'A', file: 'b' } as never }))
    expect(odd.error).toMatchObject({ code: 'invalid_option', option: 'password' })
  },
)
