import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openStore, type Store } from '../../../src/store.ts'
import { restoreBackup } from '../../../src/transfer/backup/restore.ts'
import { copyStore } from '../../support/embedded.ts'
import { openShop, placed, type ShopMap, shopEvents } from '../../support/shop.ts'
import { openIn, scratch } from './folders.ts'

let store: Store<ShopMap>
let folder: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'rillflow-backup-'))
  await copyStore(folder)
  store = await openStore({ events: shopEvents, folder })
})

afterAll(async () => {
  await store.close()
  await rm(folder, { recursive: true })
})

test('AB-22: a backup under load contains all acknowledged events, opens, accepts writes, and writers lose nothing by waiting', async () => {
  const path = await scratch()
  const acknowledged: string[] = []
  let isOver = false
  const write = async (writer: number): Promise<void> => {
    for (let n = 0; !isOver; n++) {
      const { eventIds } = await store.events.append(`order-${writer}-${n % 50}`, [placed(n)])
      acknowledged.push(...eventIds)
    }
  }
  const writers = Promise.all([1, 2].map(write))
  while (acknowledged.length < 100) await new Promise(setImmediate)
  const before = [...acknowledged]
  const phases = new Set<string>()

  const backup = await store.backup({
    output: path('backup'),
    onProgress({ phase }) {
      phases.add(phase)
      isOver = phase === 'verifying'
    },
  })
  await writers

  expect([...phases]).toEqual(['copying', 'verifying'])
  expect(await store.events.has(acknowledged.at(-1)!)).toBe(true)
  const total = (await store.events.readAll().toArray()).length
  expect(total).toBe(acknowledged.length)
  await restoreBackup({ input: backup.output, folder: path('restored') })
  const restored = await openIn(path('restored'))
  const found = await restored.events.readAll().toArray()
  const ids = new Set(found.map(event => event.id))
  expect(before.filter(id => !ids.has(id))).toEqual([])
  expect(found.at(-1)?.position).toBe(backup.position)
  expect((await restored.events.append('order-1-0', [placed()])).position).toBe(backup.position + 1)
  expect(await restored.schema.check()).toMatchObject({ isHealthy: true })
})

test('a backup describes itself, contains no locks, and can be made again elsewhere', async () => {
  const path = await scratch()
  const { position } = await store.events.append('order-1', [placed(), placed()])

  const backup = await store.backup({ output: path('one') })
  await store.backup({ output: path('two') })

  const manifest = JSON.parse(await readFile(path('one/manifest.json'), 'utf8'))
  expect(manifest).toMatchObject({
    format: 'rillflow-backup',
    kind: 'folder',
    schema: 'rillflow',
    position,
  })
  expect(manifest.files).toHaveLength(backup.files)
  const files = await readdir(path('one'), { recursive: true })
  expect(files.filter(name => /lock\.\d|unfinished|postmaster/.test(name))).toEqual([])
  expect((await readdir(path('.'))).sort()).toEqual(['one', 'two'])
})

test('existing files are never replaced, and an aborted backup leaves nothing and lets writers continue', async () => {
  const path = await scratch()
  await mkdir(path('taken'))
  const abort = new AbortController()

  await expect(store.backup({ output: path('taken') })).rejects.toMatchObject({ code: 'backup_exists' })
  const aborted = store.backup({ output: path('new'), signal: abort.signal, onProgress: () => abort.abort() })

  await expect(aborted).rejects.toMatchObject({ code: 'aborted' })
  await store.events.append('order-1', [placed()])
  expect((await readdir(path('.'))).sort()).toEqual(['taken'])
})

test('a store in memory cannot be backed up, and the error names the alternative', async () => {
  const { store: inMemory } = await openShop()

  await expect(inMemory.backup({ output: '/nowhere' })).rejects.toMatchObject({
    code: 'backup_unsupported',
    place: 'memory',
    message: expect.stringContaining('store.export()'),
  })
})

test('a damaged backup is refused before anything is written', async () => {
  const path = await scratch()
  const { position } = await store.events.append('order-1', [placed()])
  await store.backup({ output: path('backup') })
  const restore = () => restoreBackup({ input: path('backup'), folder: path('restored') })
  const file = path('backup/data/global/pg_control')
  const whole = await readFile(file)
  const reported = await readFile(path('backup/manifest.json'), 'utf8')

  await writeFile(file, Buffer.from(whole).fill(7, 100, 101))
  await expect(restore()).rejects.toMatchObject({ code: 'backup_damaged', file: 'data/global/pg_control' })
  await writeFile(file, whole.subarray(1))
  await expect(restore()).rejects.toMatchObject({ code: 'backup_damaged', reason: expect.stringContaining('bytes') })
  await writeFile(file, whole)
  await writeFile(path('backup/manifest.json'), reported.replace(`"position": ${position}`, '"position": 99'))
  await expect(restore()).rejects.toMatchObject({ code: 'backup_damaged', file: 'manifest.json' })
  await writeFile(path('backup/manifest.json'), reported.slice(0, 50))
  await expect(restore()).rejects.toMatchObject({ code: 'backup_damaged', file: 'manifest.json' })
  await writeFile(path('backup/manifest.json'), '{"format": "something"}')
  await expect(restore()).rejects.toMatchObject({ code: 'backup_unreadable' })
  await expect(restoreBackup({ input: folder, folder: path('restored') })).rejects.toMatchObject({
    code: 'backup_unreadable',
  })
  expect((await readdir(path('.'))).sort()).toEqual(['backup'])

  await writeFile(path('backup/manifest.json'), reported)
  await expect(restoreBackup({ input: path('backup'), folder })).rejects.toMatchObject({
    code: 'folder_not_empty',
  })
  await expect(
    restoreBackup({ input: path('backup'), folder: path('restored'), toPosition: position + 1 }),
  ).rejects.toMatchObject({ code: 'invalid_option', option: 'toPosition' })
  await mkdir(path('restored'))
  expect(await restore()).toMatchObject({ position, schema: 'rillflow', cut: undefined })
})
