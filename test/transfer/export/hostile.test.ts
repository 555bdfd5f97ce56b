import { execFileSync } from 'node:child_process'
import { cp, link, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '../../../src/database/sql.ts'
import { openStore } from '../../../src/store.ts'
import { exportStore } from '../../../src/transfer/export/export.ts'
import { importStore } from '../../../src/transfer/export/import.ts'
import { digestOf, type ExportedTable, type ExportManifest } from '../../../src/transfer/export/manifest.ts'
import type { IndexShape } from '../../../src/transfer/table-shape.ts'
import { freshSchema, openDatabase } from '../../support/engines.ts'
import { outcome, placed } from '../../support/shop.ts'
import { freshPath, freshPlace } from './full-shop.ts'

let folder: string
let original: { output: string; manifest: ExportManifest }

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'rillflow-hostile-'))
  const place = { database: await openDatabase(), schema: freshSchema() }
  await using store = await openStore({ ...place, migrate: true })
  await store.events.append('order-1', placed(1))
  const customers = store.documents<{ email: string }>('customers', { indexes: ['email'] })
  await customers.put('ada', { email: 'ada@shop' })
  const output = join(folder, 'original')
  original = { output, manifest: await exportStore(place, { output }) }
  await place.database.transaction(tx => tx.query(`drop schema "${place.schema}" cascade`))
})

afterAll(() => rm(folder, { recursive: true }))

type Changed = (table: ExportedTable) => Partial<Record<keyof ExportedTable | 'constraints', unknown>>

async function rewritten(manifest: object): Promise<string> {
  const output = await freshPath()
  await cp(original.output, output, { recursive: true })
  const digest = digestOf(manifest as ExportManifest)
  await writeFile(join(output, 'manifest.json'), JSON.stringify({ ...manifest, digest }))
  return output
}

/** The export with its table of customers changed, and a digest that fits. */
function withCustomers(change: Changed): Promise<string> {
  const { manifest } = original
  const tables = manifest.tables.map(table => (table.name === 'customers' ? { ...table, ...change(table) } : table))
  return rewritten({ ...manifest, tables })
}

const column =
  (given: object): Changed =>
  ({ columns: [first, ...rest] }) => ({ columns: [{ ...first, ...given }, ...rest] })
const newIndex =
  (definition: string, more: object = {}): Changed =>
  ({ indexes }) => ({
    indexes: [...indexes, { name: 'made_up', unique: false, comment: null, definition, ...more } as IndexShape],
  })

const ran = 'pg_advisory_lock(4711)'
const hostileTables: Record<string, Changed> = {
  'a call in a type': column({ type: `text default ${ran}::text` }),
  'a call that looks like a length': column({ type: 'text default pg_sleep(10)' }),
  'a statement after a type': column({ type: 'text); drop schema public cascade; --' }),
  'a type of a user': column({ type: 'public.evil' }),
  'a call in a default': column({ default: `${ran}::text` }),
  'a subquery in a default': column({ default: '(select 1)' }),
  'a cast to a type of a user': column({ default: "'x'::evil" }),
  'a text with escapes in a default': column({ default: String.raw`E'\x27'` }),
  'a comment in a default': column({ default: '1 /* x */' }),
  'a dollar quote in a default': column({ default: '$$x$$' }),
  'a call in a generated column': column({ default: `${ran}`, generated: true, nullable: true }),
  'a qualified function in a generated column': column({ default: 'public.evil(id)', generated: true }),
  'a quoted function in a generated column': column({ default: '"evil"(id)', generated: true }),
  'an index on a call': newIndex(`btree ((${ran}))`),
  'a statement after an index': newIndex('btree (id); drop schema public cascade'),
  'an index with an unknown method': newIndex('evil (id)'),
  'an index on the column of another table': newIndex('btree (secret)'),
  'an index with a call in its condition': newIndex(`btree (id) WHERE (${ran} IS NULL)`),
  'an index with a table space': newIndex('btree (id) TABLESPACE evil'),
  'an index with another comment': newIndex('btree (id)', { comment: "x'; drop schema public; --" }),
  'an index with the name of a table': newIndex('btree (id)', { name: 'events' }),
  'an odd storage option': () => ({ storage: ['fillfactor=70) tablespace evil --'] }),
  'a primary key of a missing column': () => ({ primaryKey: { name: 'customers_pkey', columns: ['secret'] } }),
  'a table without columns': () => ({ columns: [] }),
  'a table with a name that is too long': () => ({ name: 'x'.repeat(64) }),
  'a table of migrations': () => ({ name: 'migrations' }),
  'a second table of events': () => ({ name: 'events' }),
  'a file in another folder': ({ file }) => ({ file: { ...file, name: '../001-customers.ndjson' } }),
  'columns that are not a list': () => ({ columns: { length: 1, 0: { name: 'id' } } }),
  'a name that is not text': () => ({ name: ['customers'] }),
  'an unknown field': () => ({ constraints: ['check (true)'] }),
}

for (const [what, change] of Object.entries(hostileTables))
  test(`an export with ${what} is refused, and nothing of it runs`, async () => {
    const input = await withCustomers(change)
    const place = await freshPlace()

    const { error } = await outcome(importStore(place, { input }))

    expect(error).toMatchObject({ code: 'export_damaged', file: 'manifest.json' })
    const made = await place.database.run(sql`/* test.schema */
      select from pg_namespace where nspname = ${place.schema}::text`)
    expect(made).toEqual([])
  })

const hostileManifests: Record<string, (manifest: ExportManifest) => object> = {
  'no tables': manifest => ({ ...manifest, tables: null }),
  'a sequence of another program': manifest => ({ ...manifest, sequences: { ...manifest.sequences, evil: 1 } }),
  'half a number for a sequence': manifest => ({ ...manifest, sequences: { events_position: 0.5 } }),
  'a negative position': manifest => ({ ...manifest, position: -1 }),
  'migrations that are not a list': manifest => ({ ...manifest, migrations: 'all' }),
}

for (const [what, change] of Object.entries(hostileManifests))
  test(`a manifest with ${what} is refused`, async () => {
    const input = await rewritten(change(original.manifest))

    const { error } = await outcome(importStore(await freshPlace(), { input }))

    expect(error).toMatchObject({ code: 'export_damaged', file: 'manifest.json' })
  })

test('a manifest of a hundred thousand brackets is refused', async () => {
  const input = await rewritten(original.manifest)
  const deep = `{"format":"rillflow-export","version":1,"tables":${'['.repeat(100_000)}${']'.repeat(100_000)}}`
  await writeFile(join(input, 'manifest.json'), deep)

  const { error } = await outcome(importStore(await freshPlace(), { input }))

  expect(error).toMatchObject({ code: 'export_damaged' })
})

const oddFiles: Record<string, (path: string, outside: string) => Promise<unknown> | unknown> = {
  'a link': (path, outside) => symlink(outside, path),
  'a pipe': path => execFileSync('mkfifo', [path]),
  'a link to a device': path => symlink('/dev/zero', path),
  'a folder': path => cp(original.output, path, { recursive: true }),
}

for (const [what, put] of Object.entries(oddFiles))
  test(`${what} in the place of a file, or of the manifest, is refused at once`, async () => {
    const file = original.manifest.tables.find(table => table.name === 'events')!.file!.name
    for (const name of [file, 'manifest.json']) {
      const input = await rewritten(original.manifest)
      const outside = join(folder, `outside-${Math.random()}`)
      await link(join(input, name), outside)
      await rm(join(input, name))
      await put(join(input, name), outside)

      const { error } = await outcome(importStore(await freshPlace(), { input }))

      expect(error).toMatchObject({ code: 'export_damaged', file: name })
    }
  })

test('a manifest that only names honest tables is imported, with its indexes', async () => {
  const input = await withCustomers(newIndex("btree (left(id, 5)) WHERE ((body ->> 'email'::text) IS NOT NULL)"))
  const place = await freshPlace()

  await importStore(place, { input })

  const indexes = await place.database.run(sql`/* test.indexes */
    select indexname::text from pg_indexes where schemaname = ${place.schema}::text and tablename = 'customers'`)
  expect(indexes.map(({ indexname }) => indexname)).toContain('made_up')
})
