import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import type { Executor } from '../../src/database/database.ts'
import { pgliteMajor } from '../../src/database/pglite/folder.ts'
import { openPglite } from '../../src/database/pglite/pglite.ts'
import { preparedName, sql } from '../../src/database/sql.ts'
import { openDatabase } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { useShop } from './conformance/shop.ts'

const shop = useShop(openDatabase)

/** More statements than any test of timers needs, if the event loop gets to turn. */
const plenty = 20_000

/** Runs statements at full speed until `isDone`, and returns their number. */
async function runUntil(isDone: () => boolean, by: Executor): Promise<number> {
  let statements = 0
  while (!isDone() && statements < plenty) {
    await by.run(sql`/* shop.count */ select ${statements++}::integer`)
  }
  return statements
}

test('timers fire while calls follow each other at full speed', async () => {
  let fired = 0
  const timer = setInterval(() => fired++, 1)

  const statements = await runUntil(() => fired >= 20, shop().database)

  clearInterval(timer)
  expect(statements).toBeLessThan(plenty)
})

test('timers fire while many callers wait for their turn', async () => {
  const { database } = shop()
  let fired = 0
  const timer = setInterval(() => fired++, 1)

  const statements = await Promise.all(Array.from({ length: 64 }, () => runUntil(() => fired >= 20, database)))

  clearInterval(timer)
  expect(Math.max(...statements)).toBeLessThan(plenty)
})

test('timers fire while one transaction runs statements at full speed', async () => {
  let fired = 0
  const timer = setInterval(() => fired++, 1)

  const statements = await shop().database.transaction(tx => runUntil(() => fired >= 20, tx), { timeoutMs: 60_000 })

  clearInterval(timer)
  expect(statements).toBeLessThan(plenty)
})

test('a server in the same process answers under full load', async () => {
  const { database } = shop()
  const server = createServer((_, response) => response.end('open')).listen(0)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  let answer: string | undefined
  const load = Promise.all(Array.from({ length: 8 }, () => runUntil(() => answer !== undefined, database)))

  answer = await fetch(`http://127.0.0.1:${port}/`).then(response => response.text())

  expect(answer).toBe('open')
  expect(Math.max(...(await load))).toBeLessThan(plenty)
  server.closeAllConnections()
  server.close()
})

test('calls run in the order they were made', async () => {
  const { database, orders, place } = shop()

  const counts = await Promise.all(
    [1, 2, 3, 4].map(async id => {
      void place(database, id)
      return database.runArrays(sql`select count(*) from ${orders}`)
    }),
  )

  expect(counts).toEqual([[[1]], [[2]], [[3]], [[4]]])
})

test('a call beyond the limit of waiting calls is refused, and the others are served', async () => {
  const { database } = shop()
  const finish = deferred<void>()
  const open = database.transaction(() => finish.promise)
  const waiting = Array.from({ length: 10_000 }, () => database.runArrays(sql`/* shop.wait */ select 1`))

  const refused = database.run(sql`select 1`)

  await expect(refused).rejects.toMatchObject({ code: 'overloaded', limit: 10_000 })
  finish.resolve()
  await open
  expect(await Promise.all(waiting)).toHaveLength(10_000)
})

test('a transaction that waits for its turn can be aborted', async () => {
  const { database, place, placed } = shop()
  const finish = deferred<void>()
  const controller = new AbortController()
  const open = database.transaction(() => finish.promise)

  const waiting = database.transaction(tx => place(tx, 1), { signal: controller.signal })
  controller.abort()

  await expect(waiting).rejects.toMatchObject({ code: 'aborted' })
  finish.resolve()
  await open
  expect(await placed()).toEqual([])
})

test('listening and closing inside a transaction fail at once', async () => {
  const { database } = shop()

  await database.transaction(async () => {
    expect(() => database.listen('orders', () => {})).toThrow('inside an open transaction')
    await expect(database.close(0)).rejects.toMatchObject({ code: 'inside_transaction' })
  })

  expect(await database.run(sql`select 1 as one`)).toEqual([{ one: 1 }])
})

test('a hook that fails does not make its committed transaction fail', async () => {
  const { database, place, placed } = shop()
  let hasRun = false

  await database.transaction(async tx => {
    tx.afterCommit(() => {
      throw new Error('out of tea')
    })
    tx.afterCommit(() => {
      hasRun = true
    })
    await place(tx, 1)
  })

  expect(await placed()).toEqual([1])
  expect(hasRun).toBe(true)
})

test.each(['commit', 'rollback'])(
  "after a user's own %s the transaction is over, and further calls report that",
  async command => {
    const { database, place, placed } = shop()

    const ended = database.transaction(async tx => {
      await tx.query(command)
      await place(tx, 1)
    })
    const silent = database.transaction(async tx => {
      await place(tx, 2)
      await tx.query(command)
    })

    await expect(ended).rejects.toMatchObject({ code: 'transaction_closed' })
    await expect(silent).rejects.toMatchObject({ code: 'transaction_closed' })
    expect(await placed()).toEqual(command === 'commit' ? [2] : [])
  },
)

test('a statement returns the right columns after its table has changed', async () => {
  const { database, orders, place } = shop()
  const all = sql`/* shop.all */ select * from ${orders}`
  await place(database, 1)
  expect(await database.run(all)).toEqual([{ id: 1, note: 'new' }])

  await database.run(sql`alter table ${orders} add column paid boolean default true`)
  expect(await database.run(all)).toEqual([{ id: 1, note: 'new', paid: true }])
  await database.run(sql`do language plpgsql 'begin alter table ${orders} drop column paid; end'`)
  expect(await database.run(all)).toEqual([{ id: 1, note: 'new' }])

  await database.transaction(async tx => {
    await tx.query(`alter table ${orders} alter column id type text`)
    expect(await tx.run(all)).toEqual([{ id: '1', note: 'new' }])
  })
  expect(await database.run(all)).toEqual([{ id: '1', note: 'new' }])
})

test('statements still work after a user has deallocated all prepared ones', async () => {
  const { database, place, placed } = shop()
  await place(database, 1)

  await database.transaction(async tx => {
    await place(tx, 2)
    await tx.query('deallocate all')
    await place(tx, 3)
  })
  await database.run(sql`do language plpgsql 'begin execute ''deallocate all''; end'`)

  await place(database, 4)
  expect(await placed()).toEqual([1, 2, 3, 4])
})

test('more statements than the prepared-statement cache holds all work, repeatedly', async () => {
  const { database } = shop()
  const statements = Array.from({ length: 1_100 }, (_, n) => ({ label: 'n', text: `select ${n}`, values: [] }))

  for (const statement of [...statements, ...statements.slice(0, 50)])
    expect(await database.runArrays(statement)).toEqual([[Number(statement.text.slice(7))]])
})

test('a plan made for a small table is replaced when the table has grown', async () => {
  const { database, orders, place } = shop()
  const page = sql`/* shop.page */ select id, note from ${orders} where id > ${0}::bigint order by id limit 10`
  const explain = { label: 'shop.explain', text: `explain execute "${preparedName(page)}"(0)`, values: [] }

  // In one transaction, so that only the engine itself can be the reason for a new plan.
  await database.transaction(
    async tx => {
      const planOf = async () => JSON.stringify(await tx.runArrays(explain))
      await place(tx, 1)
      await tx.run(sql`analyze ${orders}`)
      for (let n = 0; n < 10; n++) await tx.run(page)
      expect(await planOf()).toContain('Seq Scan')

      await tx.run(sql`insert into ${orders} select n, repeat('tea ', 50) from generate_series(2, 5000) as n`)

      await waitUntil(async () => (await planOf()).includes('Index Scan'))
    },
    { timeoutMs: 60_000 },
  )
})

test('a copy without data fails, and the engine stays usable', async () => {
  const { database, orders } = shop()

  const copying = database.transaction(tx => tx.query(`copy ${orders} from stdin`))

  await expect(copying).rejects.toMatchObject({ code: '57014', message: expect.stringContaining('copyIn') })
  expect(await database.run(sql`select 1 as one`)).toEqual([{ one: 1 }])
})

test('SQL text with a NUL character is refused before it is sent', async () => {
  const { database } = shop()

  const failing = database.transaction(tx => tx.query(`select 1 \0; drop table orders`))

  await expect(failing).rejects.toThrow('NUL')
  expect(await database.run(sql`select 1 as one`)).toEqual([{ one: 1 }])
})

test('a value that cannot be parsed leaves the transaction usable', async () => {
  const { database, place, placed } = shop()

  await database.transaction(async tx => {
    await expect(tx.run(sql`select '{{1,2}}'::bigint[]`)).rejects.toMatchObject({ code: 'database_failed' })
    await place(tx, 1)
  })

  expect(await placed()).toEqual([1])
})

test('small tables with many changes are vacuumed and analyzed when no call waits', async () => {
  const { database, orders, place } = shop()
  for (let id = 1; id <= 100; id++) await place(database, id)
  for (let n = 0; n < 500; n++) await database.run(sql`update ${orders} set id = -id where id % 2 = 0`)

  await waitUntil(async () => (await upkeepOf()).join() === 'true,true')
})

test('a large table is analyzed but not vacuumed, and the write-ahead log is truncated', async () => {
  const { database, orders } = shop()
  await database.run(sql`insert into ${orders} select n, repeat('tea ', 250) from generate_series(1, 40000) as n`)
  await database.run(sql`delete from ${orders} where id % 2 = 0`)
  for (let n = 0; n < 500; n++) await database.run(sql`/* shop.look */ select 1`)

  await waitUntil(async () => (await upkeepOf())[1] === true)
  await waitUntil(async () => (await walBytes()) < 2 ** 25)
  expect(await upkeepOf()).toEqual([false, true])
})

/** The size of the write-ahead log that a restart would replay. */
async function walBytes(): Promise<number> {
  const [row] = await shop().database.runArrays(
    sql`select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn)::bigint from pg_control_checkpoint()`,
  )
  return row![0] as number
}

/** Whether the orders of the current test were vacuumed, and whether they were analyzed. */
async function upkeepOf(): Promise<unknown[]> {
  const { database, schema } = shop()
  const [row] = await database.runArrays(sql`
    select last_vacuum is not null, last_analyze is not null
    from pg_stat_user_tables
    where schemaname = ${schema}::text`)
  return row as unknown[]
}

test('the engine has the version that folders are checked against', async () => {
  const [row] = await shop().database.runArrays(sql`select current_setting('server_version_num')`)

  expect(Math.floor(Number(row![0]) / 10_000)).toBe(Number(pgliteMajor))
})

test('a folder of another version is refused with the next step, and is neither changed nor kept locked', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-version-'))
  await mkdir(join(folder, 'data'))
  await writeFile(join(folder, 'data', 'PG_VERSION'), '17\n')
  const refused = { code: 'folder_version_mismatch', folder, found: '17', expected: pgliteMajor }

  await expect(openPglite({ folder })).rejects.toMatchObject(refused)
  await expect(openPglite({ folder })).rejects.toMatchObject(refused)

  expect(await readdir(join(folder, 'data'))).toEqual(['PG_VERSION'])
  await rm(folder, { recursive: true })
})

test('a folder that cannot be created is refused with the reason', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-writable-'))
  await writeFile(join(folder, 'file'), '')
  await writeFile(join(folder, 'data'), 'not a folder')

  const below = openPglite({ folder: join(folder, 'file', 'store') })
  const second = openPglite({ folder })

  await expect(below).rejects.toMatchObject({ code: 'folder_not_writable', reason: expect.stringContaining('ENOTDIR') })
  await expect(second).rejects.toMatchObject({ code: 'folder_not_writable' })
  await rm(folder, { recursive: true })
})

/** Of more levels than the stack of WebAssembly has room for. */
const tooDeep = sql`/* shop.too_deep */ select 'a' ~ ${`${'('.repeat(30_000)}a${')'.repeat(30_000)}`}::text`

test.each(['memory', 'folder'])(
  'an overflow of the engine in %s is an error, and the engine is replaced',
  async place => {
    const folder = await mkdtemp(join(tmpdir(), 'rillflow-overflow-'))
    const database = await openPglite(place === 'memory' ? { memory: true } : { folder })
    const heard: string[] = []
    await database.run(sql`/* shop.create */ create table orders (id integer primary key)`)
    await database.run(sql`/* shop.insert */ insert into orders values (1)`)
    await database.listen('orders', payload => heard.push(payload)).ready

    await expect(database.run(tooDeep)).rejects.toMatchObject({ code: 'statement_too_complex' })
    const within = database.transaction(async tx => {
      await tx.run(sql`/* shop.insert */ insert into orders values (2)`)
      await tx.run(tooDeep).catch(() => {})
      await tx.run(sql`/* shop.insert */ insert into orders values (3)`)
    })

    await expect(within).rejects.toMatchObject({ code: 'transaction_closed' })
    await database.run(sql`/* shop.insert */ insert into orders values (4)`)
    expect(await database.runArrays(sql`/* shop.orders */ select id from orders order by id`)).toEqual([[1], [4]])
    await database.run(sql`/* shop.notify */ select pg_notify('orders', 'placed')`)
    await waitUntil(() => heard.includes('placed'))
    await database.close(5_000)
    await rm(folder, { recursive: true })
  },
)
