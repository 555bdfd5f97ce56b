/** The first contact says the truth: which part of the address, the server or its set-up is wrong. */
import { execFileSync } from 'node:child_process'
import { appendFile, chmod, chown, mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { openStore, type StoreOptions } from '../../src/store.ts'
import { serverCertificate, serverKey } from '../support/certificate.ts'
import { freshSchema, postgresUrl } from '../support/engines.ts'
import { type PostgresServer, startServer } from '../support/postgres-server.ts'
import { connect, openShop, outcome, placed } from '../support/shop.ts'

async function refusal(options: StoreOptions): Promise<Error & { code: string }> {
  const { value, error } = await outcome(openStore(options))
  await value?.close()
  return error as Error & { code: string }
}

test('a url that the driver cannot use is refused with the reason, and without its password', async () => {
  const wrong: Record<string, RegExp> = {
    'mysql://shop:very-secret@127.0.0.1/shop': /begins with "mysql:\/\/", and the store needs a PostgreSQL server/,
    'jdbc:postgresql://127.0.0.1/shop': /does not begin with a scheme/,
    'localhost:5432/shop': /does not begin with a scheme/,
    'host=127.0.0.1 dbname=shop': /does not begin with a scheme/,
    'postgres://shop:very-secret@one:5432,two:5432/shop': /names several hosts/,
    'postgres://shop@/shop?host=one,two': /names several hosts/,
    'postgres://shop:very-secret/1@127.0.0.1/shop': /cannot be read.*must be encoded/s,
    'postgres://shop:12#very-secret@127.0.0.1/shop': /cannot be read.*must be encoded/s,
    'postgres://shop:very-secret@127.0.0.1:99999/shop': /cannot be read.*port/s,
  }

  for (const [url, reason] of Object.entries(wrong)) {
    const error = await refusal({ url })
    expect(error).toMatchObject({ code: 'invalid_option', option: 'url', message: expect.stringMatching(reason) })
    expect(JSON.stringify(error) + error.stack).not.toContain('very-secret')
  }
})

test('a full server is waited for up to connectTimeoutMs, and then has an error of its own', async () => {
  await using server = await startServer({
    major: 18,
    settings: { max_connections: 4, reserved_connections: 0, superuser_reserved_connections: 0 },
  })
  const others = await Promise.all([1, 2, 3, 4].map(() => connect(server.url)))

  const error = await refusal({ url: server.url, connectTimeoutMs: 200 })
  const waiting = openStore({ url: server.url, migrate: true, maxConnections: 1, listen: false })
  await Promise.all(others.slice(0, 2).map(client => client.end()))
  await using store = await waiting

  expect(error).toMatchObject({
    code: 'server_full',
    retryable: true,
    message: expect.stringContaining('accepts no more connections'),
  })
  expect(store.engine).toBe('postgres')
})

test('TLS that fails, that the server demands or does not offer has a sentence each, and the option ssl wins over the url', async () => {
  await using server = await serverWithTls()
  const url = (query: string): string => `${server.url}${query}`

  expect(await refusal({ url: url('?sslmode=verify-full') })).toMatchObject({
    code: 'tls_failed',
    message: expect.stringContaining('does not trust its certificate'),
  })
  expect(await refusal({ url: url(''), ssl: false })).toMatchObject({
    code: 'tls_failed',
    message: expect.stringContaining('accepts only connections with TLS'),
  })
  expect(await refusal({ url: postgresUrl(), ssl: true })).toMatchObject({
    code: 'tls_failed',
    message: expect.stringContaining('offers no TLS'),
  })
  await using store = await openStore({
    url: url('?sslmode=disable'),
    ssl: { rejectUnauthorized: false },
    migrate: true,
  })
  await using plain = await openStore({ url: `${postgresUrl()}?sslmode=require`, ssl: false, migrate: 'manual' })
  expect([store.engine, plain.engine]).toEqual(['postgres', 'postgres'])
})

test('a standby is refused at open and at append', async () => {
  await using primary = await startServer({ major: 18, settings: { wal_level: 'replica' } })
  await using store = await openStore({ url: primary.url, migrate: true })
  await store.events.append('order-1', placed())
  await store.close()
  await using standby = await standbyOf(primary)

  expect(await refusal({ url: standby.url })).toMatchObject({ code: 'server_in_recovery', retryable: true })

  // A server that has become a standby while a store was open answers its writes as one that is read-only by default.
  const client = await connect(primary.url)
  await client.query('alter database postgres set default_transaction_read_only = on')
  await using open = await openStore({ url: primary.url })
  expect((await outcome(open.events.append('order-1', placed()))).error).toMatchObject({
    code: 'database_read_only',
    message: expect.stringContaining('Connect to the primary'),
  })
})

test('a database whose sequence is behind its events is refused at open, with the statement that mends it', async () => {
  const { store, schema, query } = await openShop({ schema: freshSchema() })
  await store.events.append('order-1', [placed(), placed(), placed()])
  await query(`select setval('~events_position'::regclass, 1)`)

  const error = await refusal({ url: postgresUrl(), schema })
  await query(/select setval\('.*?', \d+\)/.exec(error.message)![0])
  await using mended = await openStore({ url: postgresUrl(), schema })

  expect(error).toMatchObject({ code: 'sequence_behind', schema })
  expect(await mended.events.append('order-1', placed() as never)).toMatchObject({ position: 4 })
})

test('the error about a missing right names the statement, and says how to grant the right', async () => {
  const { schema, store } = await openShop({ schema: freshSchema() })
  await store.events.append('order-1', placed())
  const client = await connect()
  const role = `clerk_${freshSchema()}`
  await client.query(`create role ${role} login password 'clerk'`)
  await client.query(`grant usage on schema "${schema}" to ${role}`)
  await client.query(`grant select on all tables in schema "${schema}" to ${role}`)
  await client.query(`grant select on all sequences in schema "${schema}" to ${role}`)
  const url = new URL(postgresUrl())
  Object.assign(url, { username: role, password: 'clerk' })
  const clerk = await openStore({ url: url.href, schema, register: false })

  const { error } = await outcome(clerk.events.append('order-1', placed() as never))
  const making = await refusal({ url: url.href, schema: freshSchema(), migrate: true })
  await clerk.close()
  await client.query(`drop owned by ${role}; drop role ${role}`)

  expect(error).toMatchObject({ code: 'permission_denied', message: expect.stringContaining('Grant it the rights') })
  expect(making).toMatchObject({
    code: 'permission_denied',
    message: expect.stringContaining('CREATE on the database'),
  })
})

/** Demands TLS, with a certificate that it has signed itself. */
async function serverWithTls(): Promise<PostgresServer> {
  const server = await startServer({ major: 18 })
  const { uid, gid } = await stat(server.dataDir)
  for (const [name, text] of Object.entries({ 'server.key': serverKey, 'server.crt': serverCertificate })) {
    const path = join(server.dataDir, name)
    await writeFile(path, text, { mode: 0o600 })
    await chown(path, uid, gid)
  }
  await appendFile(join(server.dataDir, 'postgresql.conf'), '\nssl = on\n')
  await writeFile(join(server.dataDir, 'pg_hba.conf'), 'hostssl all all 127.0.0.1/32 scram-sha-256\n')
  await server.restart()
  return server
}

/** A copy of the primary's files that stays in recovery. */
async function standbyOf(primary: PostgresServer): Promise<PostgresServer> {
  await primary.stop()
  const folder = await mkdtemp(join(tmpdir(), 'rf-standby-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  await chmod(folder, 0o755)
  const dataDir = join(folder, 'data')
  execFileSync('cp', ['-a', primary.dataDir, dataDir])
  await rm(join(dataDir, 'postmaster.pid'), { force: true })
  await writeFile(join(dataDir, 'standby.signal'), '')
  await primary.restart()
  return startServer({ major: 18, dataDir })
}
