import { once } from 'node:events'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { createConnection, createServer, type Socket } from 'node:net'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { lockFolder } from '../../src/database/pglite/folder-lock.ts'
import { onFrames, sendFrame, sendNumber, sendObject } from '../../src/database/pglite/frames.ts'
import { socketPath } from '../../src/database/pglite/hub.ts'
import { openPglite } from '../../src/database/pglite/pglite.ts'
import * as wire from '../../src/database/pglite/wire.ts'
import { sql } from '../../src/database/sql.ts'
import { openStore, type Store } from '../../src/store.ts'
import { copyStore } from '../support/embedded.ts'
import { startFolderProcess } from '../support/folder-process.ts'
import { waitUntil } from '../support/wait.ts'

const placed = { type: 'OrderPlaced', data: { cents: 4200 } }

async function shopFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'shop-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

async function openShared(folder: string, options: object = {}): Promise<Database> {
  const database = await openPglite({ folder }, options)
  onTestFinished(() => database.close(1_000))
  return database
}

async function openShop(folder: string): Promise<Store> {
  const store = await openStore({ folder, pollMs: 3_600_000 })
  onTestFinished(() => store.close())
  return store
}

/** A connection to the process that has the folder open, without the code of a guest. */
async function connectTo(folder: string): Promise<{ socket: Socket; frames: string[] }> {
  const socket = createConnection(socketPath(folder))
  onTestFinished(() => void socket.destroy())
  const frames: string[] = []
  await once(socket, 'connect')
  onFrames(socket, kind => void frames.push(kind))
  return { socket, frames }
}

test('two stores on one folder see the events of each other at once, without a poll', async () => {
  const folder = await shopFolder()
  await copyStore(folder)
  const holder = await openShop(folder)
  const guest = await openShop(folder)
  const seen: string[][] = [[], []]
  const stopped = new AbortController()
  const tails = [holder, guest].map(async (store, at) => {
    for await (const event of store.events.tail({ from: 'start', signal: stopped.signal })) seen[at]!.push(event.stream)
  })

  await holder.events.append('order-1', placed)
  await waitUntil(() => seen.every(streams => streams.length === 1))
  await guest.events.append('order-2', placed)
  await waitUntil(() => seen.every(streams => streams.length === 2))
  stopped.abort()
  await Promise.all(tails)

  expect(seen).toEqual([
    ['order-1', 'order-2'],
    ['order-1', 'order-2'],
  ])
})

test('a guest becomes the holder when the holder is closed, and continues its work', async () => {
  const folder = await shopFolder()
  await copyStore(folder)
  const holder = await openStore({ folder })
  const guest = await openShop(folder)
  const third = await openShop(folder)
  await guest.events.append('order-1', placed)

  await holder.close()

  expect(await guest.events.append('order-1', placed)).toMatchObject({ version: 2 })
  expect(await third.events.append('order-1', placed)).toMatchObject({ version: 3 })
  expect(await guest.events.read('order-1').toArray()).toHaveLength(3)
})

test('transactions of a guest and of the holder run one after the other', async () => {
  const folder = await shopFolder()
  const holder = await openShared(folder)
  const guest = await openShared(folder)
  await holder.run(sql`create table stock (item text primary key, count integer not null)`)
  await holder.run(sql`insert into stock values ('cup', 0)`)
  const add = (database: Database): Promise<void> =>
    database.transaction(async tx => {
      const [row] = await tx.query<{ count: number }>(`select count from stock where item = 'cup'`)
      await new Promise(resolve => setImmediate(resolve))
      await tx.query(`update stock set count = $1 where item = 'cup'`, [row!.count + 1])
    })

  await Promise.all(Array.from({ length: 40 }, (_, at) => add(at % 2 === 0 ? holder : guest)))

  expect(await guest.runArrays(sql`select count from stock`)).toEqual([[40]])
})

test('a changed table is noticed by statements that other processes have prepared', async () => {
  const folder = await shopFolder()
  const holder = await openShared(folder)
  const guest = await openShared(folder)
  const read = sql`/* shop.stock */ select * from stock`
  await holder.run(sql`create table stock (item text)`)
  await holder.run(sql`insert into stock values ('cup')`)
  expect([await holder.run(read), await guest.run(read)]).toEqual([[{ item: 'cup' }], [{ item: 'cup' }]])

  await guest.run(sql`alter table stock add column count integer default 3`)
  const inTransaction = await holder.transaction(async tx => tx.run(read))
  await holder.run(sql`alter table stock drop column count`)

  expect(inTransaction).toEqual([{ item: 'cup', count: 3 }])
  expect(await guest.transaction(async tx => tx.run(read))).toEqual([{ item: 'cup' }])
})

test('a guest that ends in the middle of a transaction leaves nothing, and the others continue', async () => {
  const folder = await shopFolder()
  const holder = await openShared(folder)
  await holder.run(sql`create table stock (item text)`)
  const { socket, frames } = await connectTo(folder)
  sendObject(socket, 'hello', { protocol: 1 })
  sendFrame(socket, 'take')
  sendFrame(socket, 'data', wire.query(`begin; insert into stock values ('cup')`))
  await waitUntil(() => frames.includes('data'))
  const waiting = holder.run(sql`select from stock`)

  socket.destroy()

  expect(await waiting).toEqual([])
})

test('a guest that is silent in its turn is cut off, and the others continue', async () => {
  const folder = await shopFolder()
  const holder = await openShared(folder, { guestSilenceMs: 50 })
  await holder.run(sql`create table stock (item text)`)
  const { socket, frames } = await connectTo(folder)
  sendObject(socket, 'hello', { protocol: 1 })
  sendFrame(socket, 'take')
  sendFrame(socket, 'data', wire.query(`begin; insert into stock values ('cup')`))
  await waitUntil(() => frames.includes('data'))

  expect(await holder.run(sql`select from stock`)).toEqual([])
  await waitUntil(() => socket.destroyed)
})

test('a guest that sends nonsense is cut off, and the others continue', async () => {
  const folder = await shopFolder()
  const holder = await openShared(folder)
  const outside = await connectTo(folder)
  sendFrame(outside.socket, 'data', wire.query('select 1'))
  const unknown = await connectTo(folder)
  unknown.socket.write(Buffer.from([0, 0, 0, 1, 200, 0]))
  const huge = await connectTo(folder)
  huge.socket.write(Buffer.from([255, 255, 255, 255, 4]))
  const early = await connectTo(folder)
  sendNumber(early.socket, 'end', 7)

  await waitUntil(() => [outside, unknown, huge].every(({ socket }) => socket.destroyed))

  expect(await holder.runArrays(sql`select 1`)).toEqual([[1]])
})

test('only the user of the process can connect', async () => {
  const folder = await shopFolder()
  await openShared(folder)

  expect((await stat(socketPath(folder))).mode & 0o777).toBe(0o600)
})

test('a folder with a long name has guests, too', async () => {
  const folder = join(await shopFolder(), 'a-name-that-is-much-too-long-for-the-address-of-a-socket'.repeat(3))
  const holder = await openShared(folder)
  await holder.run(sql`create table stock (item text)`)

  const guest = await openShared(folder)

  expect(await guest.run(sql`select from stock`)).toEqual([])
})

test('a process that does not serve guests, or serves others, keeps the folder for itself', async () => {
  const folder = await shopFolder()
  const refused = { code: 'folder_locked', pid: process.pid, host: hostname(), retryable: true }
  const lock = await lockFolder(folder)
  await expect(openPglite({ folder })).rejects.toMatchObject(refused)
  await lock.release()

  const older = createServer(socket => {
    sendObject(socket, 'welcome', { protocol: 0, prefix: '' })
    socket.end()
  })
  const served = await lockFolder(folder, { socket: socketPath(folder) })
  older.listen(socketPath(folder))
  await once(older, 'listening')

  await expect(openPglite({ folder }, { holderPatienceMs: 100 })).rejects.toMatchObject(refused)
  await served.release()
  older.close()
})

test('of the guests of a killed process one takes the folder, and the others become its guests', async () => {
  const folder = await shopFolder()
  const processes = Array.from({ length: 3 }, startFolderProcess)
  for (const each of processes) expect(await each.ask('open', folder)).toEqual({ pid: each.pid })

  for (const [at, each] of processes.slice(0, 2).entries()) {
    await each.kill()
    for (const other of processes.slice(at + 1)) expect(await other.ask('count')).toEqual({ orders: 0 })
  }
  await processes[2]!.kill()
})
