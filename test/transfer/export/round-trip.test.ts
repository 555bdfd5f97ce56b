import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { openStore } from '../../../src/store.ts'
import { exportStore } from '../../../src/transfer/export/export.ts'
import { importStore } from '../../../src/transfer/export/import.ts'
import { openShop } from '../../support/shop.ts'
import {
  customerOptions,
  freshPath,
  freshPlace,
  openFullShop,
  rowsOf,
  strange,
  totals,
  useOtherEngine,
} from './full-shop.ts'

const otherEngine = useOtherEngine()

test('a store exported to the other engine and back has the same rows in every table', async () => {
  const shop = await openFullShop()
  const [there, back] = [await freshPath(), await freshPath()]
  const elsewhere = await freshPlace(otherEngine())
  const home = await freshPlace()

  await exportStore(shop, { output: there })
  await importStore(elsewhere, { input: there })
  await exportStore(elsewhere, { output: back })
  await importStore(home, { input: back })

  const rows = await rowsOf(shop)
  const filled = [
    'audit',
    'consumers',
    'customer_totals',
    'customers',
    'customers__history',
    'events',
    'idempotency_keys',
  ]
  filled.push(
    'inline_changes',
    'stream_aliases',
    'streams',
    'workflow_activity',
    'workflow_counters',
    'workflow_routes',
  )
  expect(Object.keys(rows).filter(name => rows[name]!.length > 0)).toEqual([...filled, 'workflows'])
  expect(await rowsOf(elsewhere)).toEqual(rows)
  expect(await rowsOf(home)).toEqual(rows)
})

test('an archive describes itself, and has a file of lines for each table', async () => {
  const shop = await openFullShop()
  const output = await freshPath()

  const manifest = await exportStore(shop, { output })

  const events = manifest.tables.find(table => table.name === 'events')!
  const lines = (await readFile(join(output, events.file!.name), 'utf8')).trimEnd().split('\n')
  expect(JSON.parse(await readFile(join(output, 'manifest.json'), 'utf8'))).toMatchObject(manifest)
  expect(manifest).toMatchObject({ format: 'rillflow-export', version: 1, engine: shop.database.engine })
  expect(lines.map(line => JSON.parse(line).position)).toEqual([1, 2, 3, 4, 5, 6])
  expect(manifest.tables.map(table => table.name)).toEqual(
    expect.arrayContaining(['streams', 'customers', 'customers__history', 'customer_totals', 'consumers', 'workflows']),
  )
  expect((await readdir(output)).length).toBe(manifest.tables.length + 1)
})

test('every character and digit is preserved', async () => {
  const shop = await openShop()
  await shop.query(`create table ~oddities (
    id bigint primary key, big bigint, exact numeric, real double precision, at timestamptz, words text, list text[],
    ids uuid[], times timestamptz[], data jsonb, verbatim json, yes boolean, bytes bytea, vector tsvector)`)
  await shop.query(
    `insert into ~oddities values
      (9223372036854775807, -9223372036854775808, 12345678901234567890.123456789012345678901234567890, 1e-300,
        '1883-11-18 12:03:57.999999-07', $1, array['a,b', null, '{"', $1], '{}', '{infinity}',
        '{"n": 12345678901234567890.10, "e": {"": [null, true, "\\u00e9"]}}', '{"b":1,${'\n'}"a" : 1.0, "b":2}', true, '\\x00ff', 'cat & dog'),
      (2, 9007199254740993, 'NaN', 'Infinity', '0044-03-15 00:00:00 BC', '', '{}', null, null, 'null', 'null', false, '', ''),
      (3, null, -0.0000, 0.1, '-infinity', null, null, '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', null, null, null, null, null, null)`.replaceAll(
      'cat & dog',
      'cat dog',
    ),
    [strange],
  )
  const elsewhere = await freshPlace(otherEngine())
  const output = await freshPath()
  const look = `select id::text, big::text, exact::text, real::text, extract(epoch from at)::text as at, words, list::text,
    ids::text, times::text, data::text, verbatim::jsonb::text as verbatim, yes::text, bytes::text, vector::text
    from ~oddities order by id`

  await exportStore(shop, { output })
  await importStore(elsewhere, { input: output })

  const brought = await openShop({ ...elsewhere })
  expect(await brought.query(look)).toEqual(await shop.query(look))
  expect(await shop.query(`select words from ~oddities where id > 3`)).toEqual([{ words: strange }])
})

test('undeclared tables are restored with their indexes, so that a later declaration finds nothing to do', async () => {
  const shop = await openFullShop()
  const place = await freshPlace(otherEngine())
  const output = await freshPath()

  await exportStore(shop, { output })
  await importStore(place, { input: output })

  const store = await openStore({ ...place, migrate: 'manual' })
  store.documents('customers', customerOptions)
  await store.projections.register(totals)
  expect(await store.schema.plan()).toEqual({ steps: [], problems: [] })
  expect(await store.schema.check()).toEqual({ isHealthy: true, problems: [], newer: [] })
  await store.close()
})

test('snapshots can be excluded', async () => {
  const shop = await openShop()
  await shop.query(`insert into ~snapshots (version, event_id, state_version, stream, body)
    values (1, gen_random_uuid(), 1, 'order-1', '{}')`)
  const place = await freshPlace()
  const output = await freshPath()

  const manifest = await exportStore(shop, { output, includeSnapshots: false })
  await importStore(place, { input: output })

  expect(manifest.tables.find(table => table.name === 'snapshots')).toMatchObject({ file: null })
  expect((await rowsOf(place)).snapshots).toEqual([])
})
