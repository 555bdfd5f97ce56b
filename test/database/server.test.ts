import { existsSync } from 'node:fs'
import { dirname } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { type PostgresServer, startServer } from '../support/postgres-server.ts'

const major = inject('engine') === 'postgres-15' ? 15 : 18
let server: PostgresServer

beforeAll(async () => {
  server = await startServer({ major })
})

afterAll(() => server[Symbol.asyncDispose]())

test('a server has the requested version', async () => {
  const [setting] = await query(server.url, 'show server_version')

  expect(setting).toEqual({ server_version: expect.stringMatching(`^${major}\\.`) })
})

test('a server requires the password', async () => {
  const wrong = server.url.replace('postgres:postgres@', 'postgres:wrong@')

  await expect(query(wrong, 'select 1')).rejects.toMatchObject({ code: '28P01' })
})

test('a server keeps its address and its acknowledged data after a kill and a restart', async () => {
  const { url } = server
  await query(url, 'create table orders (id text)')
  await query(url, `insert into orders values ('order-42')`)

  await server.kill()
  await expect(query(url, 'select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  await server.restart()

  expect(server.url).toBe(url)
  expect(await query(url, 'select id from orders')).toEqual([{ id: 'order-42' }])
})

test('a server that cannot start reports why', async () => {
  await server.stop()

  const start = startServer({ major, dataDir: server.dataDir, settings: { shared_buffers: 'plenty' } })

  await expect(start).rejects.toThrow(/did not start.*invalid value for parameter "shared_buffers"/s)
})

test('a disposed server is gone, and so is its folder', async () => {
  await server.restart()

  await server[Symbol.asyncDispose]()

  await expect(query(server.url, 'select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  expect(existsSync(dirname(server.dataDir))).toBe(false)
})

async function query(url: string, text: string): Promise<unknown[]> {
  const client = new pg.Client(url)
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}
