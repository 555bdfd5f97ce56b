import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { identifier } from '../../src/database/sql.ts'
import { openStore, type StoreOptions } from '../../src/store.ts'
import { freshSchema, openDatabase, postgresUrl } from '../support/engines.ts'
import { startServer } from '../support/postgres-server.ts'
import { onServer, openShop, outcome, paid, placed, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

async function refusal(options: StoreOptions): Promise<unknown> {
  const { value, error } = await outcome(openStore(options))
  await value?.close()
  return error
}

test('a store has one place: options that name two are refused', async () => {
  const wrong: StoreOptions[] = [
    { memory: true, folder: './shop' },
    { pool: { connect: () => Promise.reject(new Error('unused')) }, folder: './shop' },
    { url: 'postgres://localhost/shop', pool: { connect: () => Promise.reject(new Error('unused')) } },
  ]

  for (const options of wrong) {
    expect(await refusal(options)).toMatchObject({ code: 'invalid_option', retryable: false })
  }
})

test('a url that is given but empty is refused, unless a folder or memory is the fallback', async () => {
  for (const url of [undefined, ''])
    expect(await refusal({ url })).toMatchObject({ code: 'invalid_option', option: 'url' })

  await using embedded = await openStore({ url: undefined, memory: true })
  expect(embedded.engine).toBe('pglite')

  const nowhere = 'postgres://nobody@127.0.0.1:1/nowhere'
  expect(await refusal({ url: nowhere, memory: true })).toMatchObject({ code: 'database_unreachable' })
})

test('a schema name that PostgreSQL reserves, or cannot store, is refused', async () => {
  const database = await openDatabase()

  for (const schema of ['pg_shop', 'information_schema', '', 'x'.repeat(64), 'a\0b']) {
    expect(await refusal({ database, schema, migrate: true })).toMatchObject({ code: 'invalid_name' })
  }
})

test('limits of time may be longer than the 24.8 days of a timer, or endless', async () => {
  const { sibling } = await openShop()
  const endless = { answerTimeoutMs: Infinity, connectTimeoutMs: 2 ** 31, transactionTimeoutMs: 2 ** 32 }
  const store = await sibling(endless)
  const limits = { timeoutMs: Infinity, lockTimeoutMs: Infinity, idleMs: 2 ** 31 }

  let answers = 0

  for (const given of [undefined, limits])
    await store.transaction(async tx => {
      // Longer than a timer takes that fires at once.
      for (let query = 0; query < 20; query++) answers += (await tx.query('select 1')).length
    }, given)

  expect(answers).toBe(40)
})

test('a missing schema is refused with the option that creates it', async () => {
  const database = await openDatabase()
  const schema = freshSchema()

  const error = await refusal({ database, schema, migrate: false })

  expect(error).toMatchObject({ code: 'schema_missing', schema, message: expect.stringContaining('migrate: true') })
})

test('a schema that lacks a migration is refused with its name, and migrated on request', async () => {
  const { database, schema, query } = await openShop()
  await query('drop function ~append_one')
  await query('drop function ~append_batch')

  const error = await refusal({ database, schema, migrate: false })
  await using store = await openStore({ database, schema, migrate: true })

  expect(error).toMatchObject({
    code: 'schema_outdated',
    schema,
    pending: ['function append_one', 'function append_batch'],
  })
  expect(await store.events.append('order-1', placed())).toMatchObject({ version: 1 })
})

test('a schema managed by the user is opened as it is, and can be created by hand', async () => {
  const database = await openDatabase()
  const schema = freshSchema()
  await using store = await openStore({ database, schema, migrate: 'manual' })
  onTestFinished(async () => {
    await database.transaction(tx => tx.query(`drop schema ${identifier(schema).quoted} cascade`))
  })

  const before = await store.schema.state()
  await store.schema.sync()

  expect(before).toMatchObject({ status: 'missing' })
  expect(await store.events.append('order-1', placed())).toMatchObject({ version: 1 })
})

test('a schema of a newer library is refused', async () => {
  const { database, schema, query } = await openShop()
  await query(`insert into ~migrations (id, name, checksum, breaking) values (9000, 'future', 'x', true)`)

  const error = await refusal({ database, schema })

  expect(error).toMatchObject({ code: 'schema_newer', schema, found: 9000, known: expect.any(Number) })
})

test('a closed store refuses every call with the same code, and closing twice is not an error', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())

  await Promise.all([store.close(), store.close()])
  await store.close()

  const calls: Record<string, () => Promise<unknown>> = {
    append: () => store.events.append('order-1', paid),
    nothing: () => store.events.append('order-1', []),
    read: () => store.events.read('order-1').toArray(),
    readAll: () => store.events.readAll().toArray(),
    filtered: () => store.events.readAll({ types: ['OrderPaid'] }).toArray(),
    tail: () => take(store.events.tail({ from: 'start' }), 1),
    get: () => store.events.get('0190b2f0-6a1c-7def-8123-456789abcdef'),
    head: () => store.events.head(),
    waitFor: () => store.events.waitFor(9),
    import: () => store.events.import([{ stream: 'order-1', ...placed() }]),
    list: () => store.streams.list(),
    archive: () => store.streams.archive('order-1'),
    transaction: () => store.transaction(async () => {}),
    plan: () => store.schema.plan(),
  }
  for (const [name, call] of Object.entries(calls)) {
    expect((await outcome(call())).error, name).toMatchObject({ code: 'store_closed' })
  }
})

test('closing waits for running appends, and ends tails and waits', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  const before = store.metrics().settles_total
  const tailing = outcome(take(store.events.tail({ from: 'start' }), 1000))
  const waiting = outcome(store.events.waitFor(100_000))
  await waitUntil(() => store.metrics().settles_total > before)
  const appending = Array.from({ length: 40 }, (_, n) => outcome(store.events.append(`order-${n % 5}`, placed(n))))

  await store.close()

  const outcomes = await Promise.all(appending)
  expect(outcomes.every(each => each.value !== undefined)).toBe(true)
  expect((await tailing).error).toMatchObject({ code: 'store_closed' })
  expect((await waiting).error).toMatchObject({ code: 'store_closed' })
  expect(await other.events.readAll().toArray()).toHaveLength(40)
})

test('a store on a shared database does not close it', async () => {
  const { store, database, schema } = await openShop()
  await store.events.append('order-1', placed())

  await store.close()

  await using again = await openStore({ database, schema })
  expect(await again.events.read('order-1').toArray()).toHaveLength(1)
})

if (!onServer) {
  test('an embedded store keeps its events in its folder between openings', async () => {
    const folder = await temporaryFolder()
    const first = await openStore({ folder })
    await first.events.append('order-1', { type: 'OrderPlaced', data: {} })
    await first.close()

    await using second = await openStore({ folder })

    expect(second.engine).toBe('pglite')
    expect(await second.events.read('order-1').toArray()).toHaveLength(1)
    expect(await second.events.append('order-1', { type: 'OrderPaid', data: {} })).toMatchObject({ version: 2 })
  })

  test('a folder that cannot be written is refused with the reason', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'file'), '')
    const forbidden = join(folder, 'forbidden')
    await mkdir(forbidden)
    await chmod(forbidden, 0o500)
    const places = process.getuid?.() === 0 ? ['file/shop'] : ['file/shop', 'forbidden/shop']

    for (const place of places) {
      expect(await refusal({ folder: join(folder, place) })).toMatchObject({ code: 'folder_not_writable' })
    }
  })

  async function temporaryFolder(): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), 'shop-'))
    onTestFinished(() => rm(folder, { recursive: true, force: true }))
    return folder
  }
}

if (onServer) {
  test('a wrong password, an unreachable server, a missing database and a wrong user are different errors', async () => {
    const url = new URL(postgresUrl())
    const change = (part: 'password' | 'username' | 'port' | 'pathname', value: string): string => {
      const changed = new URL(url)
      changed[part] = value
      return changed.href
    }

    expect(await refusal({ url: change('password', 'wrong') })).toMatchObject({
      code: 'authentication_failed',
      user: url.username,
    })
    expect(await refusal({ url: change('username', 'nobody') })).toMatchObject({
      code: 'authentication_failed',
      user: 'nobody',
    })
    expect(await refusal({ url: change('port', '1') })).toMatchObject({
      code: 'database_unreachable',
      address: `${url.hostname}:1`,
      retryable: true,
    })
    expect(await refusal({ url: change('pathname', '/no-such-shop') })).toMatchObject({
      code: 'database_missing',
      database: 'no-such-shop',
    })
  })

  test('no error contains the password', async () => {
    const url = new URL(postgresUrl())
    url.password = 'very-secret'

    const error = (await refusal({ url: url.href })) as Error

    expect(JSON.stringify(error) + error.message + error.stack).not.toContain('very-secret')
  })

  test('a server that is too old is refused with its version', async () => {
    await using server = await startServer({ major: 14 })

    const error = await refusal({ url: server.url, migrate: true })

    expect(error).toMatchObject({ code: 'server_unsupported', version: expect.stringMatching(/^14\./), oldest: 15 })
  })
}
