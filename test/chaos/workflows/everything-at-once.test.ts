/** Everything at once: processes that are killed or stopped past their lease, and a server that stops under them. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type PostgresServer, startServer } from '../../support/postgres-server.ts'
import { waitUntil } from '../../support/wait.ts'
import { long, major } from '../chaos.ts'
import { pick, seeded } from '../seeded-random.ts'
import { noErrors } from './check-workflows.ts'
import { deadlineMs, limitMs, openScenario, type Scenario } from './scenario.ts'
import type { WorkerProcess } from './worker-process.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startServer({ major, durable: true })
})

afterAll(() => server[Symbol.asyncDispose]())

test(
  'each order reaches one correct end, whatever happens to processes and server',
  async () => {
    const seed = Math.floor(Math.random() * 2 ** 31)
    const random = seeded(seed)
    await using scenario = await openScenario({ url: server.url, seed })
    await Promise.all([scenario.start(), scenario.start(), scenario.start()].map(({ ready }) => ready))

    for (let round = 0; round < (long ? 200 : 5); round++) {
      await scenario.progress(30)
      await harms[round % harms.length]!(scenario, pick(random, scenario.processes))
      await scenario.look()
    }

    expect({ seed, ...(await scenario.finish()) }).toEqual({ seed, ...noErrors })
  },
  limitMs,
)

const harms = [killed, stopped, restarted, stopped, crashed]

async function killed(scenario: Scenario, victim: WorkerProcess): Promise<void> {
  await scenario.isAtWork(victim)
  await scenario.kill(victim)
  await scenario.start().ready
}

/** Until another process considers it dead; then it completes its work. */
async function stopped(scenario: Scenario, zombie: WorkerProcess): Promise<void> {
  const alive = (): Promise<object[]> =>
    scenario.query(
      'select 1 from ~workflow_workers where heartbeat_at >= clock_timestamp() - make_interval(secs => lease_ms / 1000.0)',
    )
  await scenario.isAtWork(zombie)
  zombie.freeze()
  const others = scenario.processes.length - 1
  const isMissed = async (): Promise<boolean> =>
    (await alive()).length === others && (await scenario.query('select 1 from ~workflow_workers')).length === others
  await waitUntil(isMissed, { deadlineMs, what: 'others to take over' })
  await scenario.progress(20)
  zombie.thaw()
  await waitUntil(async () => (await alive()).length === others + 1, { deadlineMs, what: 'its return' })
}

async function restarted(): Promise<void> {
  await server.restart()
}

async function crashed(): Promise<void> {
  await server.kill()
  await server.restart()
}
