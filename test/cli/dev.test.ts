import { existsSync } from 'node:fs'
import { rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { waitUntil } from '../support/wait.ts'
import { onServer, openFolder, patienceMs } from './shop.ts'

const patient = { deadlineMs: 120_000 }

test(
  'dev without a configuration runs the shop: orders are shipped, a few fail, and Ctrl-C ends it with 0',
  async () => {
    const shop = await openFolder({ empty: true })
    const running = shop.start('dev')
    await waitUntil(() => /OrderShipped[\s\S]*max-retries|max-retries[\s\S]*OrderShipped/.test(running.stdout()), {
      ...patient,
      what: 'an order that is shipped and one that fails',
    })
    const [line] = /curl -s http:\S+\/health\/ready/.exec(running.stdout())!
    // On a busy machine the database may answer too late for the first probe.
    await waitUntil(async () => (await fetch(line.replace('curl -s ', ''))).status === 200, {
      ...patient,
      what: 'ready',
    })
    running.interrupt()

    const { code, stdout, stderr } = await running.ended

    expect(code).toBe(0)
    expect(stdout).toMatch(
      /^\nThe shop is open: .*schema \w+\. Press Ctrl-C to stop\.\nRunning 1 projection \(orders\), 4 handlers/,
    )
    for (const type of ['OrderPlaced', 'OrderCharged', 'ItemChecked', 'OrderCleared']) expect(stdout).toContain(type)
    expect(stdout).toMatch(/failed +charge \(OrderPlaced\) +attempt 2 .*the card of \w+ has expired/)
    expect(stderr).toMatch(/Stopped\. Nothing is lost/)
    if (!onServer) expect(stdout).toContain('dist/cli/cli.js dead-letters list --schema shop\n')
    const letters = await shop.run(`dead-letters list --json${onServer ? '' : ' --schema shop'}`)
    expect(JSON.parse(letters.stdout).items).toContainEqual(expect.objectContaining({ handler: 'charge' }))
  },
  patienceMs,
)

test(
  'dev runs a configuration, and prints NDJSON with --json',
  async () => {
    const shop = await openFolder({
      config: `
        import { defineConfig, defineHandler, defineSchedule } from 'rillflow'
        export default defineConfig({
          schedules: [defineSchedule('customers', { everyMs: 200, run: ({ emit }) => emit('OrderPlaced', { total: 5 }) })],
          handlers: [defineHandler('pay', { on: 'OrderPlaced', run: (_, { emit }) => emit('OrderPaid', {}) })],
        })
      `,
    })
    const refused = await shop.run('dev --health-bind 0.0.0.0:9464')
    const running = shop.start('dev --json --health-bind 127.0.0.1:0')
    await waitUntil(() => running.stdout().includes('OrderPaid'), { ...patient, what: 'an order that is paid' })
    running.interrupt()

    const { code, stdout, stderr } = await running.ended

    expect(refused).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('--token TOKEN') })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const [ready, ...lines] = stdout
      .trimEnd()
      .split('\n')
      .map(each => JSON.parse(each))
    expect(ready).toMatchObject({
      ready: { url: expect.stringMatching(/^http:/), running: { handlers: ['pay'], schedules: ['customers'] } },
    })
    expect(lines).toContainEqual({ event: expect.objectContaining({ type: 'OrderPaid' }) })
  },
  patienceMs,
)

test(
  'dev --memory stores nothing, even if the configuration or the environment names a server, and refuses another location',
  async () => {
    const shop = await openFolder({
      empty: true,
      config: `
        import { defineSchedule } from 'rillflow'
        export default {
          url: 'postgres://127.0.0.1:1/nowhere',
          schedules: [defineSchedule('customers', { everyMs: 200, run: ({ emit }) => emit('OrderPlaced', { total: 5 }) })],
        }
      `,
    })
    const refused = await shop.run('dev --memory --folder here')
    const running = shop.start('dev --memory --health-bind 127.0.0.1:0')
    await waitUntil(() => running.stdout().includes('OrderPlaced'), { ...patient, what: 'an order' })
    running.interrupt()

    const { code, stdout, stderr } = await running.ended

    expect(refused).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--folder and --memory cannot be used together'),
    })
    expect({ code, isStored: existsSync(join(shop.path, '.rillflow')) }).toEqual({ code: 0, isStored: false })
    expect(stdout).toMatch(/^\nYour store is open: memory, schema \w+\./)
    expect(stderr).toContain('its content is gone')
  },
  patienceMs,
)

test(
  'dev starts again when the code changes, and waits for the next change if the new code fails',
  async () => {
    const configOf = (type: string): string => `
      import { defineSchedule } from 'rillflow'
      // A terminal sends Ctrl-C to all processes; only the parent may react to it.
      process.kill(process.pid, 'SIGINT')
      export default {
        schedules: [defineSchedule('customers', { everyMs: 200, run: ({ emit }) => emit('${type}', {}) })],
      }
    `
    const shop = await openFolder({ config: configOf('OrderPlaced') })
    // In one step, because half a file would be a change too.
    const change = async (text: string): Promise<void> => {
      await writeFile(join(shop.path, 'next'), text)
      await rename(join(shop.path, 'next'), join(shop.path, 'rillflow.config.mjs'))
    }
    const running = shop.start('dev --health-bind 127.0.0.1:0')
    const until = (what: string): Promise<void> =>
      waitUntil(() => running.stdout().includes(what) || running.stderr().includes(what), { ...patient, what })
    await until('OrderPlaced')
    await change(configOf('OrderPaid'))
    await until('OrderPaid')
    await change('throw new Error("no key")')
    await until('Waiting for a change')
    await change(configOf('OrderShipped'))
    await until('OrderShipped')
    running.interrupt()

    const { code, stdout, stderr } = await running.ended

    expect(code).toBe(0)
    expect(stdout.match(/Your store is open/g)).toHaveLength(3)
    expect(stderr.match(/^rillflow\.config\.mjs has changed: starting again$/gm)).toHaveLength(3)
    expect(stderr).toContain('Cannot use rillflow.config.mjs: no key')
    expect(stderr.match(/^Stopping|^Stopped/gm)).toEqual(['Stopping', 'Stopped'])
    expect(await shop.use(store => store.events.head())).toBeGreaterThan(2)
  },
  patienceMs * 2,
)
