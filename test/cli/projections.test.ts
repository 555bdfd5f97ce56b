import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { type Folder, onServer, openFolder, patienceMs, shopConfig } from './shop.ts'

let shop: Folder

beforeAll(async () => {
  shop = await openFolder({
    config: shopConfig,
    async seed(store) {
      for (let at = 1; at <= 4; at++) await store.events.append('order-1', { type: 'OrderPlaced', data: { total: at } })
      await store.events.append('order-2', { type: 'OrderPlaced', data: { total: -1 } })
    },
  })
  if (onServer) expect(await shop.run('schema sync')).toMatchObject({ code: 0 })
}, patienceMs)

test('RB-80: the projections of the configuration are run', async () => {
  const before = await shop.run('projections list')
  expect(before.stdout).toMatch(
    /^PROJECTION +STATE +CHECKPOINT +LAG +FAILURES +DEAD LETTERS +CODE\norder-totals +new .*here\norders +new /,
  )

  const once = await shop.run('consumers run-once orders --json')
  const idle = await shop.run('consumers run-until-idle')

  expect(JSON.parse(once.stdout)).toEqual([{ consumer: 'orders', result: 'processed', events: 5 }])
  expect(idle.stdout).toMatch(
    /^CONSUMER +RESULT +EVENTS\norder-totals +idle +5\norders +idle +0\nsnapshotter-order +idle +5\nmailer +idle +0\n$/,
  )
})

test('projections show how far they are', async () => {
  await shop.shows('consumers status order-totals', {
    text: [/consumer +order-totals\nkind +projection\nstate +stopped\ncheckpoint +5 of 5\nlag +0/, /dead letters +1/],
    json: { name: 'order-totals', checkpoint: 5, lag: 0, deadLetters: 1 },
  })
  await shop.shows('projections metrics orders', {
    text: [/^consumer +orders\n/],
    json: { lag: 0, lagSeconds: 0, attempts: 0, deadLetters: 0, isPaused: false },
  })
  await shop.shows('consumers list --limit 2', {
    text: [
      /^CONSUMER +KIND +STATE .*\nmailer +subscription .*\norder-totals +projection +stopped +5 +0 +0 +1 +here\n$/,
    ],
    json: { items: [{ name: 'mailer', group: 'default' }, { name: 'order-totals' }], next: expect.any(String) },
  })
  const { next } = JSON.parse((await shop.run('consumers list --limit 2 --json')).stdout)
  const rest = await shop.run(`consumers list --after ${next} --kind projection --json`)
  expect(JSON.parse(rest.stdout).items.map((each: { name: string }) => each.name)).toEqual(['orders'])

  const typo = await shop.run('consumers status order-total')

  expect(typo).toMatchObject({ code: 1 })
  expect(typo.stderr).toMatch(/Did you mean "order-totals"\?.*\n +try: rillflow consumers list/)
})

test('the rows of a read model are shown by primary key', async () => {
  await shop.shows('projections rows order-totals --limit 1', {
    text: [/^STREAM +TOTAL\norder-1 +10\n$/],
    json: { items: [{ stream: 'order-1' }] },
  })
  const unknown = await shop.run('projections rows order-totals --table totals')

  expect(unknown).toMatchObject({ code: 2, stderr: expect.stringContaining('It has order_totals.') })
})

test('a stream is shown over time: its states, the event behind each field, and its snapshots', async () => {
  await shop.shows('streams state order-1 --of orders --version 2', {
    text: ['version 2', '"total": 3'],
    json: { version: 2, state: { total: 3 } },
  })
  await shop.shows('streams steps order-1 --of orders --from 2 --to 3', {
    text: [/2 +OrderPlaced +total +\{"total":3\}/],
    json: { items: [{ version: 2 }, { version: 3, state: { total: 6 } }] },
  })
  await shop.shows('streams blame order-1 --of orders', {
    text: [/^FIELD .*\ntotal +4 +OrderPlaced/],
    json: { items: [{ path: 'total', version: 4 }] },
  })
  await shop.shows('streams snapshots order-2', { text: ['The stream has no snapshot.'], json: { items: [] } })
  const typo = await shop.run('streams state order-1 --of ordres')

  expect(typo).toMatchObject({ code: 2, stderr: expect.stringContaining('Did you mean "order"?') })
})

test('projections are paused and resumed, under either noun', async () => {
  await shop.shows('consumers pause orders', { text: ['Paused orders.'], json: [{ isPaused: true }] })

  const paused = await shop.run('consumers run-once orders --json')
  await shop.shows('projections resume orders', { text: ['Resumed orders.'], json: [{ isPaused: false }] })

  expect(JSON.parse(paused.stdout)).toMatchObject([{ result: 'paused', events: 0 }])
})

test('resetting a checkpoint needs confirmation, and its old name is accepted', async () => {
  const asked = await shop.run('consumers reset orders 2')
  const dry = await shop.run('projections reset orders 2 --dry-run --json')
  const beyond = await shop.run('consumers reset orders 99 --yes')
  const done = await shop.run('projections reset-checkpoint orders 2 --force')

  expect(asked).toMatchObject({ code: 2, stdout: '' })
  expect(asked.stderr).toContain('try: rillflow consumers reset orders 2 --yes')
  expect(JSON.parse(dry.stdout)).toMatchObject({ dryRun: true, would: expect.stringContaining('from 5 to 2') })
  expect(beyond).toMatchObject({ stdout: '', stderr: expect.stringContaining('the log ends at 5') })
  expect(beyond.code).not.toBe(0)
  expect(done).toMatchObject({ code: 0, stdout: 'Reset orders from 5 to 2.\n' })
})

test('projections rebuild fills the read model again', async () => {
  await shop.shows('projections rebuild orders', {
    text: [/^Rebuilt orders: 5 events in .*, up to position 5\.\n$/],
    json: { projection: 'orders', events: 5, position: 5 },
  })
  await shop.shows('docs get orders order-1', { text: ['"total": 10'], json: { data: { total: 10 } } })
})

test('projections rehearse says what a rebuild would change, and changes nothing', async () => {
  await shop.shows('projections rehearse orders', {
    text: [/^orders: 0 rows would change, 0 be added, 0 be removed; \d+ stay\.\n$/],
    json: { projection: 'orders', isExact: true, tables: [{ table: 'orders', changed: 0 }] },
  })
})

test('a projection is made inline and async again', async () => {
  await shop.shows('projections switch orders --lifecycle inline', {
    text: ['orders is inline.'],
    json: { name: 'orders', state: 'inline' },
  })
  // The configuration says async, so no lifecycle has to be named.
  await shop.shows('projections switch orders', { text: ['orders is async.'], json: { state: 'active' } })
})

test('consumers wait ends when a position is applied, and says why if it is not', async () => {
  await shop.shows('consumers wait order-totals 5', {
    text: ['order-totals has applied every event up to position 5.'],
    json: { name: 'order-totals', checkpoint: 5 },
  })

  const late = await shop.run('consumers wait order-totals 6 --timeout-ms 100')

  expect(late).toMatchObject({ code: 1, stderr: expect.stringMatching(/No runner runs "order-totals".*It is at 5/) })
})

test('dead letters are listed, shown, retried, resolved and deleted', async () => {
  const listed = await shop.run('dead-letters list order-totals --state open --json')
  const [{ eventId }] = JSON.parse(listed.stdout).items
  await shop.shows('dead-letters list', {
    text: [/^OWNER +EVENT .*\norder-totals +[0-9a-f-]{36} +OrderPlaced +open +1 .*a negative total/],
    json: { items: [{ consumer: 'order-totals', eventId, state: 'open' }] },
  })
  await shop.shows('dead-letters stats', {
    text: [/^OWNER +OPEN +RETRYING +PARKED +REPLAYED +RESOLVED\norder-totals +1 +0 +0 +0 +0\n$/],
    json: { items: [{ consumer: 'order-totals', open: 1 }] },
  })
  await shop.shows(`dead-letters show order-totals ${eventId}`, {
    text: [/state +open/, 'Error: a negative total', /stream +order-2 at version 1/],
    json: { state: 'open', errors: [{ message: 'a negative total' }], event: { stream: 'order-2' } },
  })
  await shop.shows(`dead-letters retry order-totals ${eventId}`, {
    text: ['Requested a retry of 1 dead letter of order-totals. No runner has order-totals now'],
    json: { requested: 1, isRunning: false },
  })

  const resolved = await shop.run(['dead-letters', 'resolve', 'order-totals', eventId, '--note', 'a test', '--json'])
  const deleted = await shop.run(`dead-letters delete order-totals ${eventId} --yes`)
  const gone = await shop.run(`dead-letters show order-totals ${eventId}`)

  expect(JSON.parse(resolved.stdout)).toMatchObject({ state: 'resolved', note: 'a test' })
  expect(deleted).toMatchObject({ code: 0, stdout: `Deleted the dead letter of event ${eventId} for order-totals.\n` })
  expect(gone).toMatchObject({ code: 1, stderr: expect.stringContaining('try: rillflow dead-letters list') })
})

test('dead letters begin with the latest failure, and a page says that there are more', {
  timeout: patienceMs,
}, async () => {
  const folder = await openFolder({ config: shopConfig })
  if (onServer) expect(await folder.run('schema sync')).toMatchObject({ code: 0 })
  for (const order of ['order-1', 'order-2', 'order-3']) {
    await folder.run(['events', 'append', order, 'OrderPlaced', '{"total":-1}'])
    await folder.run('consumers run-until-idle order-totals')
  }
  const streamsOf = (text: string): string[] => JSON.parse(text).items.map((each: { stream: string }) => each.stream)

  const first = await folder.run('dead-letters list --limit 2', { env: {} })
  const page = await folder.run('dead-letters list --limit 2 --json')
  const { next } = JSON.parse(page.stdout)
  const rest = await folder.run(`dead-letters list --limit 2 --after ${next} --json`)

  expect(streamsOf(page.stdout)).toEqual(['order-3', 'order-2'])
  expect(streamsOf(rest.stdout)).toEqual(['order-1'])
  expect(first.stderr).toBe(`There are more. For the next page add --after ${next} to the same line.\n`)
  const asked = await folder.run(
    `dead-letters delete order-totals ${JSON.parse(page.stdout).items[0].eventId} --dry-run`,
  )
  expect(asked.stdout + asked.stderr).toContain('(open, 1 attempt)')
})

test('a consumer is removed after a confirmation', async () => {
  const refused = await shop.run('consumers remove orders')
  const withTables = await shop.run('consumers remove orders --drop-tables')
  const removed = await shop.run('consumers remove orders --drop-tables --yes')

  expect(refused).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('delete the checkpoint and the dead letters'),
  })
  expect(withTables.stderr).toContain('and the tables')
  expect(removed).toMatchObject({ code: 0, stdout: 'Removed orders.\n' })
  const status = await shop.run('consumers status orders')
  expect(status.stdout).toMatch(/state +new/)
})

test('RB-80: a command that runs code fails if the configuration has none', async () => {
  await writeFile(join(shop.path, 'empty.mjs'), 'export default {}')
  const lines = [
    'consumers run-once',
    'projections rebuild orders',
    'snapshots metrics',
    'run --only handlers',
    'run --once',
  ]

  for (const line of onServer ? lines : lines.slice(-1)) {
    const { code, stdout, stderr } = await shop.run(`${line} --config empty.mjs`)

    expect({ line, code, stdout }).toEqual({ line, code: 2, stdout: '' })
    expect(stderr).toMatch(/nothing to run: empty\.mjs has no .*\n +try: add some to empty\.mjs/)
  }
})
