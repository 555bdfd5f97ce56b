import { cp, mkdir, mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '../../../src/database/sql.ts'
import { library } from '../../../src/parts.ts'
import { openSchema } from '../../../src/schema/schema.ts'
import { TableRegistry } from '../../../src/schema/table.ts'
import { openStore } from '../../../src/store.ts'
import { exportStore } from '../../../src/transfer/export/export.ts'
import { importStore } from '../../../src/transfer/export/import.ts'
import { digestOf, type ExportManifest, verifyExport } from '../../../src/transfer/export/manifest.ts'
import type { StoreLocation } from '../../../src/transfer/transfer.ts'
import { freshSchema, openDatabase } from '../../support/engines.ts'
import { openShop, outcome, placed } from '../../support/shop.ts'
import { freshPath, freshPlace, rowsOf } from './full-shop.ts'

let folder: string
let original: { output: string; manifest: ExportManifest }

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'rillflow-archive-'))
  const place = { database: await openDatabase(), schema: freshSchema() }
  await using store = await openStore({ ...place, migrate: true })
  await store.events.append('order-1', [placed(1), placed(2)])
  const output = join(folder, 'original')
  original = { output, manifest: await exportStore(place, { output }) }
  await place.database.transaction(tx => tx.query(`drop schema "${place.schema}" cascade`))
})

afterAll(() => rm(folder, { recursive: true }))

interface SmallArchive {
  readonly output: string
  readonly manifest: ExportManifest
  /** The path of the file with the events. */
  readonly events: string
}

/** An archive of two events, to be damaged. */
async function smallArchive(): Promise<SmallArchive> {
  const output = await freshPath()
  await cp(original.output, output, { recursive: true })
  const { file } = original.manifest.tables.find(table => table.name === 'events')!
  return { output, manifest: original.manifest, events: join(output, file!.name) }
}

async function isThere({ database, schema }: StoreLocation): Promise<boolean> {
  const rows = await database.run(sql`/* test.schema */ select from pg_namespace where nspname = ${schema}::text`)
  return rows.length > 0
}

/** The same archive with another valid manifest. */
async function rewrite(output: string, manifest: object): Promise<void> {
  const written = { ...manifest, digest: digestOf(manifest as ExportManifest) }
  await writeFile(join(output, 'manifest.json'), JSON.stringify(written))
}

const damages: Record<string, { code: string; damage(archive: SmallArchive): Promise<unknown> }> = {
  'a flipped byte': {
    code: 'export_damaged',
    async damage({ events }) {
      const bytes = await readFile(events)
      bytes[20]! ^= 1
      await writeFile(events, bytes)
    },
  },
  'a missing file': { code: 'export_damaged', damage: ({ events }) => rm(events) },
  'a cut file': {
    code: 'export_damaged',
    damage: async ({ events }) => truncate(events, (await stat(events)).size - 5),
  },
  'a row too many': {
    code: 'export_damaged',
    async damage({ events }) {
      await writeFile(events, `${await readFile(events, 'utf8')}{}\n`)
    },
  },
  'a changed manifest': {
    code: 'export_damaged',
    async damage({ output }) {
      const text = await readFile(join(output, 'manifest.json'), 'utf8')
      await writeFile(join(output, 'manifest.json'), text.replace('"position": 2', '"position": 1'))
    },
  },
  'half a manifest': {
    code: 'export_damaged',
    damage: ({ output }) => truncate(join(output, 'manifest.json'), 100),
  },
  'a file outside of the folder': {
    code: 'export_damaged',
    async damage({ output, manifest, events }) {
      await cp(events, join(dirname(output), 'outside.ndjson'))
      const tables = manifest.tables.map(table =>
        table.name === 'events' ? { ...table, file: { ...table.file, name: '../outside.ndjson' } } : table,
      )
      await rewrite(output, { ...manifest, tables })
    },
  },
  'a newer format': {
    code: 'export_newer',
    damage: ({ output, manifest }) => rewrite(output, { ...manifest, version: 2 }),
  },
  'a newer schema': {
    code: 'export_newer',
    damage: ({ output, manifest }) =>
      rewrite(output, { ...manifest, migrations: [...manifest.migrations, { id: 999, name: 'later', checksum: '' }] }),
  },
  'migrations of another program': {
    code: 'export_unreadable',
    damage: ({ output, manifest }) =>
      rewrite(output, { ...manifest, migrations: manifest.migrations.map(each => ({ ...each, checksum: 'other' })) }),
  },
  'a manifest of something else': {
    code: 'export_unreadable',
    damage: ({ output }) => writeFile(join(output, 'manifest.json'), '{"name":"app"}'),
  },
  'a folder without a manifest': {
    code: 'export_unreadable',
    damage: ({ output }) => rm(join(output, 'manifest.json')),
  },
}

for (const [what, { code, damage }] of Object.entries(damages)) {
  test(`${what} is refused, and nothing is written`, async () => {
    const archive = await smallArchive()
    const place = await freshPlace()
    await damage(archive)

    const verified = await outcome(verifyExport(archive.output))
    const imported = await outcome(importStore(place, { input: archive.output }))

    expect(verified.error).toMatchObject({ code, input: archive.output })
    expect(imported.error).toMatchObject({ code, input: archive.output })
    expect(await isThere(place)).toBe(false)
  })
}

test('a schema with rows is refused, and one without rows is accepted', async () => {
  const { output } = await smallArchive()
  const full = await openShop()
  const empty = await openShop()
  await full.store.events.append('order-9', placed())
  const before = await rowsOf(full)

  const refused = await outcome(importStore(full, { input: output }))
  await importStore(empty, { input: output })

  expect(refused.error).toMatchObject({ code: 'schema_not_empty', schema: full.schema })
  expect(await rowsOf(full)).toEqual(before)
  expect((await empty.store.events.read('order-1').toArray()).map(event => event.position)).toEqual([1, 2])
})

test('a schema with foreign tables is refused', async () => {
  const { output } = await smallArchive()
  const place = await freshPlace()
  await place.database.transaction(async tx => {
    await tx.query(`create schema "${place.schema}"`)
    await tx.query(`create table "${place.schema}".things (id integer primary key)`)
  })

  const refused = await outcome(importStore(place, { input: output }))

  expect(refused.error).toMatchObject({ code: 'schema_not_empty' })
  expect(Object.keys(await rowsOf(place))).toEqual(['things'])
})

test('an export replaces nothing, and leaves nothing when it fails', async () => {
  const { output } = await smallArchive()
  const shop = await openShop()
  const empty = await freshPath('empty')
  const odd = await freshPath('odd')
  await mkdir(empty)
  await shop.query('create table ~notes (words text)')

  const results = [output, empty, odd].map(path => outcome(exportStore(shop, { output: path })))
  const codes = (await Promise.all(results)).map(({ error }) => (error as { code: string }).code)

  expect(codes).toEqual(['export_exists', 'export_exists', 'not_exportable'])
  expect(await readdir(dirname(odd))).toEqual([])
  expect(await readdir(empty)).toEqual([])
})

test('aborted in the middle, neither an export nor an import leaves anything', async () => {
  const shop = await openShop()
  await shop.store.events.append('order-1', placed())
  const [whole, cut] = [await freshPath(), await freshPath()]
  const place = await freshPlace()
  await exportStore(shop, { output: whole })
  const aborting = (): { signal: AbortSignal; onProgress: () => void } => {
    const controller = new AbortController()
    return { signal: controller.signal, onProgress: () => controller.abort() }
  }

  const exported = await outcome(exportStore(shop, { output: cut, ...aborting() }))
  const imported = await outcome(importStore(place, { input: whole, ...aborting() }))

  expect([exported.error, imported.error]).toMatchObject([{ code: 'aborted' }, { code: 'aborted' }])
  expect(await readdir(dirname(cut))).toEqual([])
  expect(await isThere(place)).toBe(false)
})

test('an archive of an older version is imported as it was, and then migrated', async () => {
  const [old, place] = [await freshPlace(), await freshPlace()]
  const tables = new TableRegistry()
  // Of tables there is one version so far. One without functions stands for an older library.
  await openSchema(old.database, { schema: old.schema, tables, library: { ...library, functions: [] } }).sync()
  await old.database.transaction(async tx => {
    await tx.query(`insert into "${old.schema}".streams (stream, version) values ('order-1', 1)`)
    await tx.query(`insert into "${old.schema}".events
        (position, version, created_at, event_id, schema_version, stream, type, correlation_id, data)
      values
        (nextval('"${old.schema}".events_position'), 1, now(), gen_random_uuid(), 1, 'order-1', 'OrderPlaced', 'c', 'null')`)
  })
  const output = await freshPath()

  const manifest = await exportStore(old, { output })
  await importStore(place, { input: output })

  const { store } = await openShop(place)
  expect(manifest.migrations.at(-1)).toMatchObject({ id: library.migrations.length })
  expect(await store.schema.check()).toMatchObject({ isHealthy: true })
  expect(await store.events.read('order-1').toArray()).toMatchObject([{ version: 1, data: null }])
})
