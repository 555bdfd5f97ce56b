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
    /^PROJECTION +STATE +CHECKPOINT +LAG +DEAD LETTERS +CODE\norder-totals +new .*here\norders +new /,
  )

  const once = await shop.run('projections run-once orders --json')
  const idle = await shop.run('projections run-until-idle')

  expect(JSON.parse(once.stdout)).toEqual([{ projection: 'orders', result: 'processed', events: 5 }])
  expect(idle.stdout).toMatch(/order-totals +idle +5\norders +idle +0\n/)
})

test('projections show how far they are', async () => {
  await shop.shows('projections status order-totals', {
    text: [/projection +order-totals\nstate +stopped\ncheckpoint +5 of 5\nlag +0/, /dead letters +1/],
    json: { name: 'order-totals', checkpoint: 5, lag: 0, deadLetters: 1 },
  })
  await shop.shows('projections metrics orders', {
    text: [/^PROJECTION +LAG .*\norders +0 +0\.0 +0 +0 +no\n$/],
    json: { orders: { lag: 0, deadLetters: 0, isPaused: false } },
  })

  const typo = await shop.run('projections status order-total')

  expect(typo).toMatchObject({ code: 1 })
  expect(typo.stderr).toMatch(/Did you mean "order-totals"\?.*\n +try: rillflow projections list/)
})

test('projections are paused and resumed', async () => {
  await shop.shows('projections pause orders', { text: ['Paused orders.'], json: { isPaused: true } })

  const paused = await shop.run('projections run-once orders --json')
  await shop.shows('projections resume orders', { text: ['Resumed orders.'], json: { isPaused: false } })

  expect(JSON.parse(paused.stdout)).toMatchObject([{ result: 'paused', events: 0 }])
})

test('resetting a checkpoint needs confirmation, and its old name is accepted', async () => {
  const asked = await shop.run('projections reset orders 2')
  const dry = await shop.run('projections reset orders 2 --dry-run --json')
  const done = await shop.run('projections reset-checkpoint orders 2 --force')

  expect(asked).toMatchObject({ code: 2, stdout: '' })
  expect(asked.stderr).toContain('try: rillflow projections reset orders 2 --yes')
  expect(JSON.parse(dry.stdout)).toMatchObject({ dryRun: true, would: expect.stringContaining('from 5 to 2') })
  expect(done).toMatchObject({ code: 0, stdout: 'Reset orders from 5 to 2.\n' })
})

test('projections rebuild fills the read model again', async () => {
  await shop.shows('projections rebuild orders', {
    text: [/^Rebuilt orders: 5 events in .*, up to position 5\.\n$/],
    json: { projection: 'orders', events: 5, position: 5 },
  })
  await shop.shows('docs get orders order-1', { text: ['"total": 10'], json: { data: { total: 10 } } })
})

test('dead letters are listed, shown, retried, resolved and deleted', async () => {
  const listed = await shop.run('dead-letters list order-totals --state open --json')
  const [{ eventId }] = JSON.parse(listed.stdout)
  await shop.shows('dead-letters list', {
    text: [/^CONSUMER +EVENT .*\norder-totals +[0-9a-f-]{36} +OrderPlaced +open +1 .*a negative total/],
    json: [{ consumer: 'order-totals', eventId, state: 'open' }],
  })
  await shop.shows('dead-letters stats', {
    text: [/^CONSUMER +OPEN +RETRYING +REPLAYED +RESOLVED\norder-totals +1 +0 +0 +0\n$/],
    json: [{ consumer: 'order-totals', open: 1 }],
  })
  await shop.shows(`dead-letters show order-totals ${eventId}`, {
    text: [/state +open/, 'Error: a negative total', /stream +order-2 at version 1/],
    json: { state: 'open', errors: [{ message: 'a negative total' }], event: { stream: 'order-2' } },
  })
  await shop.shows(`dead-letters retry order-totals ${eventId}`, {
    text: ['Requested a retry of 1 dead letter of order-totals. No runner has this consumer now'],
    json: { requested: 1, isRunning: false },
  })

  const resolved = await shop.run(['dead-letters', 'resolve', 'order-totals', eventId, '--note', 'a test', '--json'])
  const deleted = await shop.run(`dead-letters delete order-totals ${eventId} --yes`)
  const gone = await shop.run(`dead-letters show order-totals ${eventId}`)

  expect(JSON.parse(resolved.stdout)).toMatchObject({ state: 'resolved', note: 'a test' })
  expect(deleted).toMatchObject({ code: 0, stdout: `Deleted the dead letter of event ${eventId} for order-totals.\n` })
  expect(gone).toMatchObject({ code: 1, stderr: expect.stringContaining('try: rillflow dead-letters list') })
})

test('RB-80: a command that runs code fails if the configuration has none', async () => {
  await writeFile(join(shop.path, 'empty.mjs'), 'export default {}')
  const lines = [
    'projections run-once',
    'projections rebuild orders',
    'snapshots metrics',
    'workflows run',
    'run --once',
  ]

  for (const line of onServer ? lines : lines.slice(-1)) {
    const { code, stdout, stderr } = await shop.run(`${line} --config empty.mjs`)

    expect({ line, code, stdout }).toEqual({ line, code: 2, stdout: '' })
    expect(stderr).toMatch(/nothing to run: empty\.mjs has no .*\n +try: add some to empty\.mjs/)
  }
})
