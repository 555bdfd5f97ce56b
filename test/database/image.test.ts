/** A new embedded database begins with an image, and without one if there is none to be had. */
import { chmod, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { beforeAll, expect, onTestFinished, test } from 'vitest'
import { openPglite, type PgliteLocation } from '../../src/database/pglite/pglite.ts'
import { sql } from '../../src/database/sql.ts'

/** A folder with an image, made by the first database that was opened with it. */
let prepared: string

beforeAll(async () => {
  prepared = await mkdtemp(join(tmpdir(), 'rillflow-image-'))
  await works({ memory: true }, prepared)
  return () => rm(prepared, { recursive: true })
})

async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-image-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

async function imageIn(folder: string): Promise<string> {
  const [name] = await readdir(folder)
  return join(folder, name!)
}

/** Opens a database, writes and reads, and closes it. */
async function works(where: PgliteLocation, imageFolder: string): Promise<void> {
  const database = await openPglite(where, { imageFolder })
  await database.transaction(tx => tx.query('create table orders (id integer primary key)'))
  await database.transaction(tx => tx.query('insert into orders values (1)'))
  const rows = await database.run<{ id: number }>(sql`select id from orders`)
  await database.close(1000)
  expect(rows).toEqual([{ id: 1 }])
}

test('the first database makes the image, for this user alone, and leaves nothing else', async () => {
  const names = await readdir(prepared)

  expect(names).toEqual([expect.stringMatching(/^embedded-\d+\.\d+\.\d+\.tar\.gz$/)])
  expect((await stat(await imageIn(prepared))).mode & 0o777).toBe(0o600)
})

test('databases in memory and in folders begin with it, empty and each for itself', async () => {
  const folder = await freshFolder()
  const before = (await stat(await imageIn(prepared))).ino

  await works({ memory: true }, prepared)
  await works({ folder }, prepared)

  const again = await openPglite({ folder }, { imageFolder: prepared })
  expect(await again.run(sql`select id from orders`)).toEqual([{ id: 1 }])
  await again.close(1000)
  expect((await stat(await imageIn(prepared))).ino).toBe(before)
})

test('one that is damaged, or that no engine starts from, is replaced', async () => {
  const image = await imageIn(prepared)
  const whole = await readFile(image)

  await writeFile(image, whole.subarray(0, whole.length / 2))
  await works({ memory: true }, prepared)
  expect((await readFile(image)).length).toBeGreaterThan(whole.length / 2 + 1)

  await writeFile(image, gzipSync('not an image'))
  await works({ folder: await freshFolder() }, prepared)
  await works({ memory: true }, prepared)
  expect((await readFile(image)).length).toBeGreaterThan(whole.length / 2)
})

test('where it cannot be stored, a database is made without', async () => {
  const folder = await freshFolder()
  await writeFile(join(folder, 'file'), '')

  await works({ memory: true }, join(folder, 'file', 'below'))

  expect(await readdir(folder)).toEqual(['file'])
})

if (process.getuid !== undefined)
  test('a folder that others can write, or an image that is a link, is not read', async () => {
    const [open, linked] = [await freshFolder(), await freshFolder()]
    await chmod(open, 0o777)
    await symlink(join(open, 'image'), join(linked, (await imageIn(prepared)).split('/').at(-1)!))

    await works({ memory: true }, open)
    await works({ memory: true }, linked)

    expect(await readdir(open)).toEqual([])
    expect((await stat(await imageIn(linked))).isFile()).toBe(true)
  })
