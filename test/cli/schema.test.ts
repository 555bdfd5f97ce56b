import { existsSync } from 'node:fs'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { type Folder, onServer, openFolder, patienceMs } from './shop.ts'

let shop: Folder

const declaring = (name: string): string => `
  import { defineCollection } from 'rillflow'
  export default { collections: [defineCollection('${name}')] }
`

beforeAll(async () => {
  shop = await openFolder({ empty: true })
}, patienceMs)

test('status fails if there is no store, and does not create one', async () => {
  const { code, stdout, stderr } = await shop.run('status')

  expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
  expect(stderr).toContain('try: rillflow schema sync')
  expect(existsSync(join(shop.path, '.rillflow'))).toBe(false)
})

test('a folder that is not a store is not changed by a command that reads, and its files not by a command that writes', async () => {
  const prices = join(shop.path, 'prices')
  await mkdir(join(prices, 'data'), { recursive: true })
  await writeFile(join(prices, 'data', 'list.csv'), 'teapot;1250')

  const read = await shop.run('status --folder prices')
  const written = await shop.run('schema sync --folder prices')

  expect(read).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('no embedded store in "prices"'),
  })
  expect(written).toMatchObject({ code: 2, stderr: expect.stringContaining('"data" that is not a store') })
  expect(await readdir(join(prices, 'data'))).toEqual(['list.csv'])
})

test(
  'schema plan, sync, check and down, and health schema, work one after the other',
  async () => {
    if (onServer) {
      const planned = await shop.run('schema-plan --json')
      expect(JSON.parse(planned.stdout).steps.length).toBeGreaterThan(10)
      const summary = await shop.run('schema plan')
      expect(summary.stdout).toMatch(
        /^Schema \w+ does not exist\. A sync creates it, with \d+ tables, .*\d+ indexes.* and \d+ \w+\.\n\n\d+ steps\. To run them: rillflow schema sync\nTo read them: rillflow schema plan --sql\n$/,
      )
      const text = await shop.run('schema plan --sql')
      expect(text.stdout.match(/^create table/gm)!.length).toBeGreaterThan(5)
      expect(await shop.run('health schema')).toMatchObject({
        code: 3,
        stdout: expect.stringContaining('rillflow schema sync'),
      })
    }
    const synced = await shop.run('schema sync')
    expect(synced).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Synced schema \w+: \d+ steps\.\n$/) })

    await shop.shows('schema plan', { text: ['Nothing to do: schema'], json: { steps: [], problems: [] } })
    await shop.shows('schema check', {
      text: [/^ok +Schema \w+ is the one that this version/],
      json: { isHealthy: true, problems: [] },
    })
    await shop.shows('health schema', { text: [/^ok /], json: { isHealthy: true, newer: [] } })

    await writeFile(join(shop.path, 'rillflow.config.mjs'), declaring('customers'))
    const lacking = await shop.run('schema check')
    expect(lacking).toMatchObject({
      code: 3,
      stdout: expect.stringMatching(/table customers +is declared and missing +rillflow schema sync/),
    })
    const sql = await shop.run('schema plan --sql')
    expect(sql.stdout).toMatch(/create table .*customers/)

    const refused = await shop.run('schema down')
    const dropped = await shop.run('schema down --yes --json')
    expect(refused).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining('try: rillflow schema down --yes'),
    })
    expect(dropped).toMatchObject({ code: 0 })
    expect(JSON.parse(dropped.stdout)).toMatchObject({ dropped: true, tables: expect.any(Number) })
    expect(await shop.run('schema down --yes')).toMatchObject({ code: 1 })
  },
  patienceMs,
)

test('schema roles prints the SQL for an owner, a writer and a reader, without a store', async () => {
  const { code, stdout } = await shop.run('schema roles --schema shop --reader reports')

  expect(code).toBe(0)
  expect(stdout).toContain('create role "shop_owner" nologin')
  expect(stdout).toMatch(/grant select on all tables in schema "shop" to "reports";/)
  expect(stdout.trimEnd()).toMatch(/;$/)
})
