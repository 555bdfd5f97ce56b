import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { type Folder, onServer, openFolder, patienceMs } from './shop.ts'

let shop: Folder

/** Some start the program half a dozen times. */
const patient = { timeout: patienceMs }

beforeAll(async () => {
  shop = await openFolder({
    async seed(store) {
      const paid = { type: 'OrderPaid', data: {} }
      await store.events.append('order-1', [{ type: 'OrderPlaced', data: { total: 5 } }, paid], { idempotencyKey: 'a' })
      await store.documents('customers').put('ada', { name: 'Ada' })
    },
  })
}, patienceMs)

test('doctor tells what it looked at, and exits with 3 when something is wrong', patient, async () => {
  const well = await shop.run('doctor --json')
  // The server of the tests does not sync its files, which is an error of its own.
  const { isHealthy, findings } = JSON.parse(well.stdout)
  expect(well.code).toBe(isHealthy ? 0 : 3)
  expect(findings).toContainEqual(expect.objectContaining({ check: 'schema', level: 'ok' }))
  await shop.use(store => store.transaction(tx => tx.query(`drop index "${store.schema.name}"."events_created_at"`)))

  const ill = await shop.run('doctor')

  expect(ill).toMatchObject({
    code: 3,
    stdout: expect.stringMatching(
      /error +schema .*index events_created_at is missing\.\n +fix: undo [\s\S]*\n[1-9] wrong, \d to be seen to, of \d+\.\n$/,
    ),
  })
})

test('upkeep tells what goes, or would go', patient, async () => {
  await shop.shows('upkeep --dry-run', {
    text: [/^Would delete:\nidempotency keys +0\n/, /archived events +0 of 0 streams/],
    json: { isDryRun: true, idempotencyKeys: 0, archivedEvents: 0 },
  })
  expect(await shop.run('upkeep')).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Deleted:/) })
})

test('a store is exported and imported, into an empty one only', patient, async () => {
  const other = await openFolder({ empty: true })
  const archive = join(shop.path, 'archive')

  const exported = await shop.run(`export --output ${archive}`)
  const imported = await other.run(`import ${archive} --json`)
  const again = await other.run(`import ${archive}`)

  expect(exported).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^Archived schema \w+ of .* position 2\.\n$/),
  })
  expect(JSON.parse(imported.stdout)).toMatchObject({ format: 'rillflow-export', position: 2 })
  expect(again).toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining('[schema_not_empty]') })
  await other.shows('documents get customers ada', { text: ['"name": "Ada"'], json: { data: { name: 'Ada' } } })
  expect(await shop.run('export')).toMatchObject({ code: 2, stderr: expect.stringContaining('needs --output') })
})

test('bench measures without touching the store', patient, async () => {
  await shop.shows('bench --seconds 1 --callers 4', {
    text: [/^WORK +EVENTS +PER SECOND +P50 +P99\nappend, one caller .*\nappend, 4 callers .*\nread all of it /],
    json: { measured: [{ work: 'append, one caller' }, {}, {}] },
  })

  expect(await shop.use(store => store.events.head())).toBe(2)
})

test('an embedded store is backed up, and restored whole or up to a position', patient, async () => {
  const backup = join(shop.path, 'backup')
  const made = await shop.run(`backup --output ${backup}`)
  if (onServer) {
    expect(made).toMatchObject({ code: 1, stderr: expect.stringContaining('try: rillflow export --output DIR') })
    const restored = await shop.run(`restore ${backup}`)
    expect(restored).toMatchObject({ code: 2, stderr: expect.stringContaining('--folder PATH') })
    return
  }
  expect(made).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Backed up to .*: the log up to position 2, /) })

  const cut = await shop.run(`restore ${backup} --folder cut --to-position 1`)
  const full = await shop.run(`restore ${backup} --json`)

  expect(cut).toMatchObject({ code: 0, stdout: expect.stringContaining('position 1, 1 event after it cut away') })
  expect(JSON.parse(full.stderr)).toMatchObject({ error: { code: 'folder_not_empty' } })
  const tail = await shop.run('events tail --json --folder cut')
  expect(tail.stdout.trimEnd().split('\n').length).toBe(1)
})
