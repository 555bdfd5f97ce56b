/** Everything at once: processes that are killed, stopped past their lease, and a server that goes away under them. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type PostgresServer, startServer } from '../../support/postgres-server.ts'
import { waitUntil } from '../../support/wait.ts'
import { long, major } from '../chaos.ts'
import { pick, seeded } from '../seeded-random.ts'
import { flawless } from './check-workflows.ts'
import { deadlineMs, limitMs, openScene, type Scene } from './scenario.ts'
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
    await using scene = await openScene({ url: server.url, seed })
    await Promise.all([scene.start(), scene.start(), scene.start()].map(({ ready }) => ready))

    for (let round = 0; round < (long ? 200 : 5); round++) {
      await scene.progress(30)
      await harms[round % harms.length]!(scene, pick(random, scene.processes))
      await scene.look()
    }

    expect({ seed, ...(await scene.finish()) }).toEqual({ seed, ...flawless })
  },
  limitMs,
)

const harms = [killed, stopped, restarted, stopped, crashed]

async function killed(scene: Scene, victim: WorkerProcess): Promise<void> {
  await scene.isAtWork(victim)
  await scene.kill(victim)
  await scene.start().ready
}

/** Until another one has taken it for dead; then it ends what it had begun. */
async function stopped(scene: Scene, zombie: WorkerProcess): Promise<void> {
  const alive = (): Promise<object[]> =>
    scene.query(
      'select 1 from ~workflow_workers where heartbeat_at >= clock_timestamp() - make_interval(secs => lease_ms / 1000.0)',
    )
  await scene.isAtWork(zombie)
  zombie.freeze()
  const others = scene.processes.length - 1
  const isMissed = async (): Promise<boolean> =>
    (await alive()).length === others && (await scene.query('select 1 from ~workflow_workers')).length === others
  await waitUntil(isMissed, { deadlineMs, what: 'others to take over' })
  await scene.progress(20)
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
