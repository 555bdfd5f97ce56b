import { beforeAll, expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { waitUntil } from '../support/wait.ts'
import { type Folder, onServer, openFolder, patienceMs, shopConfig } from './shop.ts'

let shop: Folder
let paid: string
let failed: string

beforeAll(async () => {
  shop = await openFolder({ config: shopConfig })
  if (onServer) expect(await shop.run('schema sync')).toMatchObject({ code: 0 })
  // The first run stores the handler, which begins with the events after it.
  const early = await shop.run(['workflows', 'publish', 'OrderSeen', '{}'])
  expect(early).toMatchObject({ code: 0, stderr: expect.stringContaining('No runner was started yet with pay.') })
  expect(await shop.run('run --once --json')).toMatchObject({ code: 0 })
  const first = await shop.run(['workflows', 'publish', 'OrderPlaced', '{"total":5}', '--json'])
  const second = await shop.run(['workflows', 'publish', 'OrderPlaced', '{"total":5000}'])
  paid = JSON.parse(first.stdout).correlationId
  failed = /workflow ([0-9a-f-]{36})\.\n$/.exec(second.stdout)![1]!
  const ran = await shop.run('run --once --json')
  expect(ran).toMatchObject({ code: 0 })
}, patienceMs)

test('workflows are listed by their state', async () => {
  await shop.shows('workflows list', {
    text: [
      /^WORKFLOW +STATE +PENDING .*\n/,
      new RegExp(`${failed} +failed +0 +0 +1 +OrderPlaced`),
      new RegExp(`${paid} +settled`),
    ],
    json: {
      items: [
        { correlationId: failed, state: 'failed' },
        { correlationId: paid, state: 'settled' },
      ],
    },
  })
  await shop.shows('workflows list --state failed', {
    text: [failed],
    json: { items: [{ correlationId: failed }] },
  })

  const wrong = await shop.run('workflows list --state broken')
  const kebab = await shop.run('workflows list --state compensation-failed --json')

  expect(wrong).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/--state must be one of running, waiting, parked, failed.*, compensation-failed/),
  })
  expect(kebab).toMatchObject({ code: 0 })
})

test('publish --wait says at once that no runner runs handlers', async () => {
  const { code, stderr } = await shop.run('workflows publish OrderSeen --wait --timeout-ms 200')

  expect(code).toBe(1)
  expect(stderr).toMatch(/^No runner runs handlers now, .*: rillflow run\nerror: .* did not happen within 200 ms/)
})

test('a retry for a handler that there is not says so, and a verb without a noun names its nouns', async () => {
  const retried = await shop.run(`workflows retry ${failed} --handler pya`)
  const bare = await shop.run('retry --handler pya')

  expect(retried).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(
      /Handler "pya" does not exist here\. Did you mean "pay"\?[\s\S]*try: rillflow handlers list/,
    ),
  })
  expect(bare).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(
      /There is no command "retry" without a noun\. There are workflows retry, dead-letters retry\./,
    ),
  })
})

test('workflows show and tree show the state of a workflow, and what caused what', async () => {
  await shop.shows(`workflows show ${failed}`, {
    text: [/state +failed/, /pay +1 +.* +the card was refused/],
    json: { correlationId: failed, state: 'failed', attempts: [{ handler: 'pay', kind: 'failed' }] },
  })
  await shop.shows(`workflows tree ${paid}`, {
    text: [/^OrderPlaced #\d+\n└─ pay completed .*\n {3}└─ OrderPaid #\d+\n$/],
    json: { roots: [{ type: 'OrderPlaced', handlers: [{ handler: 'pay', events: [{ type: 'OrderPaid' }] }] }] },
  })

  const mermaid = await shop.run(`workflows tree ${paid} --mermaid`)
  const unknown = await shop.run('workflows show nowhere')

  expect(mermaid.stdout).toMatch(/^flowchart TD\n/)
  expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining('try: rillflow workflows list') })
})

test('workflows watch prints each activity once and in order, until the workflow is settled', async () => {
  await shop.shows(`workflows watch ${paid} --until-settled`, {
    text: [/dispatched +pay \(OrderPlaced\)/, /completed +pay \(OrderPlaced\)/],
    json: expect.arrayContaining([expect.objectContaining({ kind: 'completed', handler: 'pay' })]),
    isNdjson: true,
  })
})

test('workflows are signalled, retried, resumed, rejected and cancelled', async () => {
  await shop.shows(['workflows', 'signal', paid, 'OrderApproved', '{"by":"Ada"}'], {
    text: [`Signalled OrderApproved to workflow ${paid}.`],
    json: { correlationId: paid, type: 'OrderApproved' },
  })
  const retried = await shop.run(`workflows retry ${failed}`)
  expect(retried.stdout).toMatch(
    `Requested a retry of 1 dead letter of workflow ${failed}. No runner has their handlers now`,
  )

  const resumed = await shop.run(`workflows resume ${failed}`)
  const unconfirmed = await shop.run(`workflows reject ${failed}`)
  const rejected = await shop.run(`workflows reject ${failed} --yes --json`)
  expect(resumed).toMatchObject({ code: 0, stdout: `Resumed 0 parked executions of workflow ${failed}.\n` })
  expect(unconfirmed).toMatchObject({ code: 2, stderr: expect.stringContaining('dead-letter 0 parked executions') })
  expect(JSON.parse(rejected.stdout)).toEqual({ correlationId: failed, rejected: [] })

  const unasked = await shop.run(`workflows cancel ${failed}`)
  const cancelled = await shop.run(['workflows', 'cancel', failed, '--reason', 'too dear', '--yes', '--json'])

  expect(unasked).toMatchObject({ code: 2, stdout: '' })
  expect(JSON.parse(cancelled.stdout)).toMatchObject({ state: 'cancelled', reason: 'too dear' })
})

test('all workflows that match are cancelled together, and never all without a condition', async () => {
  const published = await shop.run(['workflows', 'publish', 'OrderPlaced', '{"total":7000}', '--json'])
  const { correlationId } = JSON.parse(published.stdout)
  expect(await shop.run('run --once --json')).toMatchObject({ code: 0 })

  const unsaid = await shop.run('workflows cancel-all --yes')
  const asked = await shop.run('workflows cancel-all --state failed')
  await shop.shows('workflows cancel-all --state failed --since 1h --reason late --yes', {
    text: [/^Cancelled [1-9]\d* workflows?\.\n$/],
    json: { cancelled: 0 },
  })

  expect(unsaid).toMatchObject({ code: 2, stderr: expect.stringContaining('needs a condition') })
  expect(asked).toMatchObject({ code: 2, stdout: '' })
  const shown = await shop.run(`workflows show ${correlationId} --json`)
  expect(JSON.parse(shown.stdout)).toMatchObject({ state: 'cancelled', reason: 'late' })
})

test('handlers are shown with their policy, paused, resumed and retired; lanes are listed', async () => {
  await shop.shows('handlers show pay', {
    text: [/handler +pay v1\n/, /retries +0/, /on failure +deadLetter/],
    json: { items: [{ handler: 'pay', policy: { retries: 0 } }] },
  })
  await shop.shows('handlers pause pay', { text: ['Paused pay.'], json: { state: 'paused' } })
  const paused = await shop.run('handlers list --json')
  await shop.shows('handlers resume pay', { text: ['Resumed pay.'], json: { state: 'active' } })
  const asked = await shop.run('handlers retire pay')
  const retired = await shop.run('handlers retire pay --yes')
  await shop.run('handlers resume pay')
  await shop.shows('lanes list --parked', { text: ['No lane has executions'], json: { items: [] } })
  await shop.shows('lanes unpark pay', { text: ['0 lanes of pay continued.'], json: { unparked: 0 } })
  const unknown = await shop.run('handlers show pya')

  expect(JSON.parse(paused.stdout).items[0].pausedAt).toEqual(expect.any(String))
  expect([asked.code, retired.code]).toEqual([2, 0])
  expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining('try: rillflow handlers list') })
})

test('a schedule shows its next times, is paused, resumed, triggered and deleted', async () => {
  await shop.shows('schedules next restock --count 2', {
    text: [/^\d{4}-\d\d-\d\dT03:00:00\.000Z \(in .*\)\n\d{4}.*\n$/],
    json: { items: [expect.any(String), expect.any(String)] },
  })
  await shop.shows('schedules pause restock', { text: ['Paused restock.'], json: { state: 'paused' } })
  await shop.shows('schedules resume restock', { text: ['Resumed restock.'], json: { state: 'active' } })
  await shop.shows('schedules history restock', { text: ['It has not run yet.'], json: { items: [] } })
  await shop.shows('schedules trigger restock', {
    text: [/^Asked for a run of restock, workflow /],
    json: { schedule: 'restock', correlationId: expect.any(String) },
  })
  const asked = await shop.run('schedules delete restock')
  const deleted = await shop.run('schedules delete restock --yes')
  const listed = await shop.run('schedules list --json')
  expect(await shop.run('run --once --json')).toMatchObject({ code: 0 })

  expect([asked.code, deleted.code]).toEqual([2, 0])
  expect(JSON.parse(listed.stdout).items).toEqual([])
})

test('handlers and schedules are listed, also as verbs of workflows', async () => {
  await shop.shows('workflows handlers', {
    text: [/^HANDLER .*\npay +queued +active +0 +0 +0 +0 +0 +OrderPlaced\n$/],
    json: { items: [{ handler: 'pay', workers: 0 }] },
  })
  await shop.shows('workflows schedules', {
    text: [/^SCHEDULE .*\nrestock +active +in .*here/],
    json: { items: [{ name: 'restock', state: 'active', isHere: true }] },
  })
})

test('one execution of a paused handler is run by hand, and its workflow is found by its attributes', {
  timeout: patienceMs,
}, async () => {
  const folder = await openFolder({
    config: `
      import { defineHandler } from 'rillflow'
      const run = (event, { emit }) => emit('OrderPaid', { total: event.data.total })
      export default { handlers: [defineHandler('pay', { on: 'OrderPlaced', paused: true, run })] }
    `,
  })
  if (onServer) expect(await folder.run('schema sync')).toMatchObject({ code: 0 })
  await folder.use(async store => {
    await store.register(defineHandler('pay', { on: 'OrderPlaced', paused: true, run: () => {} }))
    await using _ = await store.start()
    for (const customer of ['c-1', 'c-2'])
      await store.workflows.publish(
        'OrderPlaced',
        { total: 5 },
        { correlationId: `of-${customer}`, attributes: { customer } },
      )
    await waitUntil(async () => (await store.workflows.executions.list({ state: 'ready' })).items.length === 2)
  })
  const listed = await folder.run('workflows executions --workflow of-c-1 --json')
  const [{ executionId }] = JSON.parse(listed.stdout).items

  const run = await folder.run(`workflows run ${executionId}`)
  const again = await folder.run(`workflows run ${executionId}`)

  expect(run).toMatchObject({ code: 0, stdout: expect.stringMatching(/of-c-1 {2}completed {3}pay \(OrderPlaced\)/) })
  expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('try: rillflow workflows executions') })
  const found = await folder.run('workflows list --attribute customer=c-2 --json')
  expect(JSON.parse(found.stdout).items).toMatchObject([{ correlationId: 'of-c-2', attributes: { customer: 'c-2' } }])
  expect((await folder.run('workflows tree of-c-1 --data')).stdout).toContain('OrderPaid #3  {"total":5}')
  expect((await folder.run('workflows list --retrying')).stdout).toBe('There are no workflows.\n')
})
