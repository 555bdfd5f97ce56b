import { existsSync } from 'node:fs'
import { appendFile, mkdir, readdir, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { saveNames } from '../../src/cli/completion.ts'
import { waitUntil } from '../support/wait.ts'
import { completedBy } from './bash.ts'
import { type Folder, onServer, openFolder, patienceMs, shopConfig } from './shop.ts'

let shop: Folder

beforeAll(async () => {
  shop = await openFolder({
    config: shopConfig,
    seed: store => store.events.append('order-1', { type: 'OrderPlaced', data: { total: 5 } }),
  })
  if (onServer) expect(await shop.run('schema sync')).toMatchObject({ code: 0 })
}, patienceMs)

const patient = { deadlineMs: 60_000 }

test('run runs everything in the configuration, and Ctrl-C lets running work end', async () => {
  const running = shop.start('run --name west-1')
  await waitUntil(() => running.stderr().includes('Press Ctrl-C to stop'), patient)
  expect(running.stderr()).toMatch(
    /2 projections \(order-totals, orders\), 1 subscription \(mailer\), 1 snapshotter .*1 handler \(pay\), 1 schedule \(restock\)\./,
  )
  if (onServer) {
    await shop.run(['events', 'append', 'order-1', 'OrderShipped', '{}'])
    await waitUntil(() => running.stdout().includes('mail for order-1'), patient)
    // One process that runs all of them is one runner, and those that have ended do not count.
    expect(JSON.parse((await shop.run('status --json')).stdout)).toMatchObject({ runners: 1 })
    expect(await shop.run('run --once')).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse((await shop.run('status --json')).stdout)).toMatchObject({ runners: 1 })
    const listed = await shop.run('runners list --json')
    expect(JSON.parse(listed.stdout).items).toContainEqual(
      expect.objectContaining({
        name: 'west-1',
        isAlive: true,
        concurrency: 16,
        handlers: [{ handler: 'pay', version: 1 }],
      }),
    )
    expect(await shop.run('runners demote west-1')).toMatchObject({
      code: 0,
      stdout: 'Runner "west-1" is on standby.\n',
    })
    expect(await shop.run('runners promote west-1')).toMatchObject({ code: 0, stdout: 'Runner "west-1" is active.\n' })
    expect(await shop.run('runners pause west-1')).toMatchObject({ code: 0, stdout: 'Runner "west-1" is paused.\n' })
    expect(await shop.run('runners resume west-1')).toMatchObject({ code: 0, stdout: 'Runner "west-1" runs again.\n' })
  }

  running.interrupt()

  const { code, stderr } = await running.ended
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('press Ctrl-C again') })
})

test('SIGTERM, and SIGHUP as of a terminal that is closed, end a command as Ctrl-C does', async () => {
  for (const signal of ['SIGTERM', 'SIGHUP'] as const) {
    const running = shop.start('run')
    await waitUntil(() => running.stderr().includes('Press Ctrl-C to stop'), patient)

    running.interrupt(signal)

    expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringContaining('press Ctrl-C again') })
  }
})

test('the commands that init suggests work', { timeout: patienceMs }, async () => {
  const folder = await openFolder()
  const { stdout: advice } = await folder.run('init')
  expect(advice).toMatch(/ schema sync .*\n.* events append order-1 OrderPlaced '{"total":99}'\n.* run .*\n.* status /)

  expect(await folder.run('schema sync', { env: {} })).toMatchObject({ code: 0 })
  const appended = await folder.run(['events', 'append', 'order-1', 'OrderPlaced', '{"total":99}'], { env: {} })
  expect(appended).toMatchObject({ code: 0 })
  const running = folder.start('run')
  await waitUntil(() => running.stdout().includes('an order was placed: order-1 { total: 99 }'), patient)
  running.interrupt()

  expect(await running.ended).toMatchObject({ code: 0 })
})

test('run --once ends when there is nothing left to do', async () => {
  await shop.use(store => store.events.append('order-2', { type: 'OrderShipped', data: {} }))

  const { code, stdout, stderr } = await shop.run('run --once')

  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  expect(stdout).toContain('mail for order-2')
  expect(stdout).toMatch(/Done: \d+ events? applied/)
})

test('run --once ends when a new handler was given all earlier events', { timeout: patienceMs }, async () => {
  const folder = await openFolder({
    config: `
      import { defineHandler } from 'rillflow'
      const run = event => console.log('good morning', event.stream)
      export default { handlers: [defineHandler('greet', { on: 'OrderPlaced', from: 'start', run })] }
    `,
    // More events than one batch has, and the wanted one at the end.
    seed: store => store.events.import([...viewed(20_000), { stream: 'order-1', type: 'OrderPlaced', data: {} }]),
  })

  const { code, stdout } = await folder.run('run --once')

  expect(code).toBe(0)
  expect(stdout).toContain('good morning order-1')
})

function viewed(count: number): { stream: string; type: string; data: object }[] {
  return Array.from({ length: count }, (_, at) => ({ stream: `page-${at % 10}`, type: 'PageViewed', data: {} }))
}

test('run --only runs the kinds it names, and continues until Ctrl-C', async () => {
  for (const [line, message] of [
    // The name that the Rust edition has.
    ['projections run-loop', 'Running 2 projections (order-totals, orders). Press'],
    ['run --only handlers --only schedules --concurrency 2', 'Running 1 handler (pay), 1 schedule (restock). Press'],
    ['run --only upkeep --lease-ms 1000', 'Running upkeep. Press'],
  ] as const) {
    const running = shop.start(line)
    await waitUntil(() => running.stderr().includes(message), { ...patient, what: line })

    running.interrupt()

    expect(await running.ended).toMatchObject({ code: 0 })
  }
  expect(await shop.run('run --only workers')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(
      '--only must be one of projections, processors, subscriptions, snapshots, handlers',
    ),
  })
})

test('run --once --only leaves the other kinds alone', async () => {
  await shop.use(store => store.events.append('order-3', { type: 'OrderShipped', data: {} }))

  const projections = await shop.run('run --once --only projections --json')
  const subscriptions = await shop.run('run --once --only subscriptions --only upkeep')

  expect(projections).toMatchObject({ code: 0, stdout: expect.not.stringContaining('mail for order-3') })
  expect(subscriptions).toMatchObject({ code: 0, stdout: expect.stringContaining('mail for order-3') })
})

test('run --paused and run --standby need a name, and run nothing until they are promoted', async () => {
  for (const flag of ['--paused', '--standby'])
    expect(await shop.run(`run ${flag}`)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`try: rillflow run --name west-1 ${flag}`),
    })
  expect(await shop.run('run --name west-1 --paused --standby')).toMatchObject({ code: 2 })
  const running = shop.start('run --name west-2 --paused')
  await waitUntil(() => running.stderr().includes('Runner "west-2" is paused'), patient)
  if (onServer) {
    await shop.run(['events', 'append', 'order-4', 'OrderShipped', '{}'])
    expect(await shop.run('consumers wait mailer --timeout-ms 500')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('No runner runs "mailer"'),
    })
    expect(running.stdout()).not.toContain('mail for order-4')
    expect(await shop.run('runners promote west-2')).toMatchObject({ code: 0 })
    await waitUntil(() => running.stdout().includes('mail for order-4'), patient)
  }

  running.interrupt()

  expect(await running.ended).toMatchObject({ code: 0 })
})

test('status shows the store at a glance', async () => {
  await shop.shows('status', {
    text: [
      /^store .*schema .*\nschema +current\nlog +position \d+/,
      /order-totals +projection/,
      /mailer +subscription/,
    ],
    json: { log: {}, consumers: expect.arrayContaining([expect.objectContaining({ name: 'mailer' })]) },
  })
})

test('a second Ctrl-C ends the process immediately', { timeout: patienceMs }, async () => {
  const folder = await openFolder({
    config: `
      import { defineSchedule } from 'rillflow'
      const run = () => {
        console.log('counting')
        return new Promise(() => setInterval(() => {}, 1000))
      }
      export default { schedules: [defineSchedule('stock-taking', { everyMs: 200, run })] }
    `,
  })
  const running = folder.start('run')
  await waitUntil(() => running.stdout().includes('counting'), patient)

  running.interrupt()
  await waitUntil(() => running.stderr().includes('press Ctrl-C again'), patient)
  running.interrupt('SIGTERM')

  expect(await running.ended).toMatchObject({ code: 130 })
})

test('run --health-bind answers probes and Prometheus, and needs a token if other machines can reach it', async () => {
  const refused = await shop.run('run --health-bind 0.0.0.0:9464')
  const odd = await shop.run('run --health-bind nowhere')
  const running = shop.start('run --health-bind 127.0.0.1:0 --token secret')
  await waitUntil(() => running.stderr().includes('Press Ctrl-C to stop'), patient)
  const [url] = /http:\S+(?=\/health)/.exec(running.stderr())!

  // On a busy machine the database may answer too late for the first probe.
  await waitUntil(async () => (await fetch(`${url}/health/ready`)).status === 200, patient)
  const closed = await fetch(`${url}/metrics`)
  const metrics = await fetch(`${url}/metrics`, { headers: { authorization: 'Bearer secret' } })
  const text = await metrics.text()
  running.interrupt()

  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('try: --token TOKEN, or RILLFLOW_TOKEN') })
  expect(odd).toMatchObject({ code: 2, stderr: expect.stringContaining('must be HOST:PORT, not "nowhere"') })
  expect([closed.status, metrics.status]).toEqual([401, 200])
  expect(text).toContain('rillflow_')
  expect(await running.ended).toMatchObject({ code: 0 })
})

test('completion knows the names that the last status saved, and executes none of them', async () => {
  const hostile = '$(touch ran) `touch ran` x'
  for (const name of ['parcels', hostile])
    expect(await shop.run(['subscriptions', 'create', name])).toMatchObject({ code: 0 })
  const { stdout: script } = await shop.run('completion bash')

  expect(await shop.run('status')).toMatchObject({ code: 0, stderr: '' })

  const file = join(shop.cache, 'rillflow', 'names')
  expect(await readFile(file, 'utf8')).toMatch(
    /^consumer\tmailer\nconsumer\torder-totals\nconsumer\torders\nconsumer\tparcels\nconsumer\tsnapshotter-order\nprojection\torder-totals\nprojection\torders\n(subscription\t\w+\n)+(dead-letter\t\S+\n)*handler\tpay\ncollection\tcustomers\n$/,
  )
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  // Lines that `status` would not have written.
  await appendFile(file, `tenant\tacme\ndead-letter\tcharge\nsubscription\t${hostile}\n`)
  const expected = {
    'rillflow consumers pause m': ['mailer'],
    'rillflow projections pause order-': ['order-totals'],
    'rillflow projections rebuild --url postgres://ada@localhost/shop order-': ['order-totals'],
    'rillflow consumers reset orders 0 --dry': ['--dry-run'],
    'rillflow consumers pause --tenant acme orders --tena': ['--tenant', '--tenancy'],
    'rillflow consumers pause --j': ['--json'],
    'rillflow subscriptions groups par': ['parcels'],
    'rillflow subscriptions reset par': ['parcels'],
    'rillflow subscriptions groups $': hostile.split(' '),
    'rillflow documents get cu': ['customers'],
    'rillflow dead-letters list ch': ['charge'],
    'rillflow workflows retry --handler ': ['pay'],
    'rillflow status --tenant ': ['acme'],
    'rillflow status --folder ': [],
  }
  expect(await completedBy(script, Object.keys(expected), shop)).toEqual(expected)
  expect(existsSync(join(shop.path, 'ran'))).toBe(false)
})

test('the file with names for the shell stays small', async () => {
  vi.stubEnv('XDG_CACHE_HOME', shop.cache)
  onTestFinished(() => void vi.unstubAllEnvs())
  const others = {
    consumer: [],
    projection: [],
    subscription: ['parcels'],
    'dead-letter': [],
    handler: [],
    collection: [],
  }
  const lengths: [number, number][] = []

  for (const letters of [1, 200]) {
    const tenant = Array.from({ length: 2000 }, (_, at) => 'ä'.repeat(letters) + at)
    await saveNames({ ...others, tenant })
    const text = await readFile(join(shop.cache, 'rillflow', 'names'), 'utf8')
    expect(text).toMatch(/^subscription\tparcels\n[\s\S]*\n$/)
    lengths.push([text.split('\n').length - 1, Buffer.byteLength(text)])
  }

  const [[maximum], [fewer, bytes]] = lengths as [[number, number], [number, number]]
  expect(maximum).toBe(1000)
  expect(fewer).toBeLessThan(maximum)
  expect(bytes).toBeGreaterThan(65_000)
  expect(bytes).toBeLessThanOrEqual(65_536)
})

test('status succeeds if the cache cannot be written', async () => {
  const folder = join(shop.cache, 'rillflow')
  await rm(folder, { recursive: true, force: true })
  await mkdir(join(folder, 'names'), { recursive: true })

  expect(await shop.run('status')).toMatchObject({ code: 0, stderr: '' })

  expect(await readdir(folder)).toEqual(['names'])
})
