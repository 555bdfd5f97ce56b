import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { asCommand } from '../../src/cli/commands/schema.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { HandlerContext } from '../../src/workflows/steps/context.ts'
import { postgresUrl } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { type Folder, onServer, openFolder, patienceMs } from './shop.ts'

let shop: Folder

/** Some tests start the program six times. */
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

test('doctor shows what it checked, and exits with 3 if it finds an error', patient, async () => {
  const healthy = await shop.run('doctor --json')
  // The server of the tests runs without fsync, which is an error too.
  const { isHealthy, findings } = JSON.parse(healthy.stdout)
  expect(healthy.code).toBe(isHealthy ? 0 : 3)
  expect(findings).toContainEqual(expect.objectContaining({ check: 'schema', level: 'ok' }))
  await shop.use(store => store.transaction(tx => tx.query(`drop index "${store.schema.name}"."events_created_at"`)))

  const unhealthy = await shop.run('doctor')

  expect(unhealthy).toMatchObject({
    code: 3,
    stdout: expect.stringMatching(
      /error +schema .*index events_created_at is missing\.\n +fix: rillflow schema sync\n[\s\S]*\n[1-9] errors?, \d+ warnings?, \d+ checks\.\n$/,
    ),
  })
})

test('doctor advises commands, not the calls of a program', () => {
  expect(asCommand('Call store.consumers.resume("sales").')).toBe('Run: rillflow consumers resume sales.')
  expect(asCommand('Fix it, then call store.consumers.remove("mailer", { group: "eu" }).')).toBe(
    'Fix it, then run: rillflow consumers remove mailer --group eu.',
  )
  expect(asCommand('Call store.consumers.resume("a b").')).toBe('Call store.consumers.resume("a b").')
})

test('check names what a deployment of the configuration would break, and exits with 3', patient, async () => {
  let waiting: string[] = []
  const next = await openFolder({
    // The two steps have changed places, and shipping is gone.
    config: `
      import { defineConfig, defineHandler } from 'rillflow'
      const run = async (_, { step, waitForEvent }) => {
        await step('pack', () => 'packed')
        await step('pick', () => 'picked')
        await waitForEvent('OrderPaid')
      }
      export default defineConfig({ handlers: [defineHandler('packing', { on: 'OrderPlaced', run })] })`,
    async seed(store) {
      const run = async (_: unknown, { step, waitForEvent }: HandlerContext): Promise<void> => {
        await step('pick', () => 'picked')
        await step('pack', () => 'packed')
        await waitForEvent('OrderPaid')
      }
      await store.register(defineHandler('packing', { on: 'OrderPlaced', run }))
      await store.register(defineHandler('shipping', { on: 'OrderPaid', run() {} }))
      await using _runner = await store.start({ pollMs: 20 })
      for (const correlationId of ['one', 'two']) await store.workflows.publish('OrderPlaced', {}, { correlationId })
      await waitUntil(async () => {
        const { items } = await store.workflows.executions.list({ state: 'suspended' })
        waiting = items.map(({ executionId }) => executionId).sort()
        return waiting.length === 2
      })
    },
  })

  const broken = await next.run(onServer ? `check --against ${postgresUrl()}` : 'check')
  const listed = await next.run('check --json')
  await next.use(async store => {
    await store.workflows.handlers.retire('shipping')
    for (const correlationId of ['one', 'two']) await store.workflows.get(correlationId).cancel()
  })
  const safe = await next.run('check --json')

  expect(broken).toMatchObject({
    code: 3,
    stdout: expect.stringMatching(
      /error +handlers\.code .*handler "shipping" version 1\.\s+It is\s+given OrderPaid\.\n +fix: [\s\S]*retire shipping\n/,
    ),
  })
  expect(listed.code).toBe(3)
  const { findings } = JSON.parse(listed.stdout) as { findings: { check: string; of?: string[] }[] }
  expect(findings.find(({ check }) => check === 'executions.steps')?.of?.sort()).toEqual(waiting)
  expect(safe.code).toBe(0)
  expect(JSON.parse(safe.stdout)).toMatchObject({ isSafe: true })
})

test('upkeep shows what it deletes, or would delete', patient, async () => {
  await shop.shows('upkeep --dry-run', {
    text: [/^Would delete:\nidempotency keys +0\n/, /archived events +0 of 0 streams/],
    json: { isDryRun: true, idempotencyKeys: 0, archivedEvents: 0 },
  })
  expect(await shop.run('upkeep')).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Deleted:/) })
})

test('audit list shows which operator did what', patient, async () => {
  await shop.run('streams archive order-1 --actor ada@shop')
  await shop.run('streams restore order-1', { env: { RILLFLOW_ACTOR: 'grace@shop' } })
  await shop.run('streams archive order-99 --actor ada@shop')

  await shop.shows('audit list --action streams --outcome done', {
    text: [/^WHEN +ACTOR +ACTION +TARGET +OUTCOME +PARAMETERS\n/, /grace@shop +streams\.restore +order-1 +done/],
    json: {
      items: [
        { actor: 'grace@shop', action: 'streams.restore' },
        { actor: 'ada@shop', target: 'order-1' },
      ],
    },
  })
  await shop.shows('audit list --by ada@shop --outcome failed --since 1h', {
    text: [/streams\.archive +order-99 +failed +There is no stream/],
    json: { items: [{ target: 'order-99', error: { code: 'stream_not_found' } }] },
  })
})

test('a store is exported, and imported only into an empty store', patient, async () => {
  const other = await openFolder({ empty: true })
  const folder = join(shop.path, 'exported')

  const exported = await shop.run(`export --output ${folder}`)
  const imported = await other.run(`import ${folder} --json`)
  const again = await other.run(`import ${folder}`)

  expect(exported).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^Exported schema \w+ of .* position 2\.\n$/),
  })
  expect(JSON.parse(imported.stdout)).toMatchObject({ format: 'rillflow-export', position: 2 })
  expect(again).toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining('[schema_not_empty]') })
  await other.shows('documents get customers ada', { text: ['"name": "Ada"'], json: { data: { name: 'Ada' } } })
  expect(await shop.run('export')).toMatchObject({ code: 2, stderr: expect.stringContaining('needs --output') })
})

test('bench measures without touching the store', patient, async () => {
  await shop.shows('bench --seconds 1 --callers 4', {
    text: [/^WORK +EVENTS +PER SECOND +P50 +P99\nappend, one caller .*\nappend, 4 callers .*\nread all events /],
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

  expect(cut).toMatchObject({ code: 0, stdout: expect.stringContaining('position 1, and 1 later event deleted') })
  expect(JSON.parse(full.stderr)).toMatchObject({ error: { code: 'folder_not_empty' } })
  const tail = await shop.run('events tail --json --folder cut')
  expect(tail.stdout.trimEnd().split('\n').length).toBe(1)
})
