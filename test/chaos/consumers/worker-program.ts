/**
 * The program of a worker: a runner whose consumers write one row per event.
 *
 * Its batches can be paused at the worst moment: after it has read its events and before it has begun to apply them. While
 * a batch is paused the process does not renew its leases either, so that only the fence can stop the late batch. Without
 * the fence (`isUnfenced`) late batches commit.
 */

import { fileURLToPath } from 'node:url'
import { type Consumer, consumer } from '../../../src/consumers/consumer.ts'
import { openConsumers } from '../../../src/consumers/consumers.ts'
import { pause, reset, resume } from '../../../src/consumers/operator.ts'
import { runnableConsumers } from '../../../src/consumers/runners/runnable.ts'
import type { Runner } from '../../../src/consumers/runners/runner.ts'
import { openRunners } from '../../../src/consumers/runners/runners.ts'
import { readStatus } from '../../../src/consumers/status.ts'
import { systemClock } from '../../../src/core/clock.ts'
import { uuidv7Ids } from '../../../src/core/id.ts'
import { openServices } from '../../../src/core/service.ts'
import { openPglite } from '../../../src/database/pglite/pglite.ts'
import { openPostgres } from '../../../src/database/postgres/postgres.ts'
import { identifier } from '../../../src/database/sql.ts'
import { inlineRegistry } from '../../../src/events/inline/registry.ts'
import { type Log, logNames } from '../../../src/events/log.ts'
import { openWake, type Wake } from '../../../src/events/order/wake.ts'
import { watchLog } from '../../../src/events/order/watch.ts'
import { upcasters } from '../../../src/events/read/upcast.ts'
import { openStore, type Store } from '../../../src/store.ts'
import { openTelemetry } from '../../../src/telemetry/telemetry.ts'
import type { LoggedEvent } from '../../../src/verify/append-history.ts'
import { readLog } from '../../../src/verify/record-appends.ts'
import { times } from '../seeded-random.ts'
import { type PausableBatches, pausableBatches } from './pausable-batches.ts'

export interface WorkerOptions {
  readonly schema: string
  readonly consumers: readonly string[]
  readonly leaseMs: number
  /** On a server. */
  readonly url?: string
  /** Embedded; then the process also appends. */
  readonly folder?: string
  /** Its name in the rows it writes. */
  readonly name?: string
  readonly batchSize?: number
  readonly node?: string
  readonly standby?: boolean
  readonly isUnfenced?: boolean
  /** Pauses all batches after this number. */
  readonly pauseAfterBatches?: number
  /** How long a connection may be silent. */
  readonly answerTimeoutMs?: number
}

export type Task =
  | { readonly kind: 'holds' | 'resume batches' }
  | { readonly kind: 'pause' | 'resume'; readonly consumer: string }
  | { readonly kind: 'reset'; readonly consumer: string; readonly position: string }
  /** Embedded: if all consumers have reached the end of the log, all events and effects. */
  | { readonly kind: 'read' }
  /** Embedded: appends until it is killed. */
  | { readonly kind: 'append'; readonly callers: number }

export interface Answer {
  readonly holds: string[]
  readonly role: string | undefined
  readonly isRunning: boolean
  /** Number of paused batches, and how earlier paused batches ended. */
  readonly paused: number
  readonly ends: readonly string[]
  readonly appended: number
  /** Filled by `read`. */
  readonly log: readonly LoggedEvent[]
  readonly effects: readonly { readonly position: string; readonly consumer: string }[]
}

interface Work {
  readonly log: Log
  readonly wake: Wake
  readonly runner: Runner
  readonly batches: PausableBatches
  readonly store: Store | undefined
  appended: number
}

async function start(options: WorkerOptions): Promise<Work> {
  const { schema, url, folder, answerTimeoutMs, node, standby, leaseMs } = options
  const pool = { url: url!, maxConnections: 6, answerTimeoutMs }
  const database = folder === undefined ? await openPostgres(pool) : await openPglite({ folder })
  const batches = pausableBatches(database, { isUnfenced: options.isUnfenced ?? false })
  if (options.pauseAfterBatches !== undefined) batches.pauseAfter(options.pauseAfterBatches)
  const log: Log = {
    database: batches.database,
    schema,
    names: logNames(schema),
    channel: schema,
    clock: systemClock,
    ids: uuidv7Ids({ clock: systemClock }),
    telemetry: openTelemetry(false),
    schemas: new Map(),
    upcasters: upcasters([]),
    inline: inlineRegistry(),
    maxEventBytes: 1024 * 1024,
    validateOnRead: false,
  }
  let store: Store | undefined
  if (folder !== undefined) {
    store = await openStore({ database, schema, channel: schema, migrate: true })
    await store.transaction(tx => tx.query(effectsTable(schema)))
  }
  const wake = openWake(log)
  const consumers = openConsumers({ log, wake, watch: watchLog(log, wake, 200) })
  for (const name of options.consumers) consumers.register(recorder(name, options))
  const runnables = runnableConsumers(consumers)
  const { start } = openRunners({ log, wake, services: openServices(), runnables })
  const runner = await start({ name: node, standby, leaseMs })
  return { log, wake, runner, batches, store, appended: 0 }
}

export function effectsTable(schema: string): string {
  return `create table if not exists ${identifier(schema, 'effects').quoted} (
    n bigint generated always as identity primary key,
    consumer text not null, position bigint not null, stream text not null, worker text not null)`
}

function recorder(name: string, { schema, leaseMs, batchSize = 20, name: worker = '' }: WorkerOptions): Consumer {
  const text = `insert into ${identifier(schema, 'effects').quoted} (consumer, position, stream, worker)
    values ($1, $2, $3, $4)`
  return consumer(
    {
      name,
      kind: 'projection',
      filter: {},
      async handle(events, ctx) {
        for (const event of events) {
          ctx.at(event)
          await ctx.tx.query(text, [name, event.position, event.stream, worker])
        }
      },
    },
    { batchSize, leaseMs },
  )
}

async function perform(work: Work, task: Task): Promise<Answer> {
  const { log, wake, runner, batches, store } = work
  if (task.kind === 'resume batches') batches.resume()
  if (task.kind === 'append')
    for (const caller of times(task.callers, each => each))
      void (async () => {
        for (let at = 0; ; at++) {
          await store!.events.append(`order-${caller}-${at % 5}`, { type: 'OrderPlaced', data: { total: at } })
          work.appended++
        }
      })()
  if (task.kind === 'pause') await pause(log, [task.consumer])
  if (task.kind === 'resume') await resume(log, [task.consumer])
  if (task.kind === 'reset') await reset(log, [task.consumer], Number(task.position))
  if ('consumer' in task) wake.changed()
  const read = task.kind === 'read' ? await readAll(work) : { log: [], effects: [] }
  return {
    ...read,
    holds: runner.holds(),
    role: runner.role,
    isRunning: runner.isRunning,
    paused: batches.paused(),
    ends: batches.ends(),
    appended: work.appended,
  }
}

/** Empty while a consumer is not at the end. */
async function readAll({ log, store }: Work): Promise<Pick<Answer, 'log' | 'effects'>> {
  if ((await readStatus(log)).some(({ lag }) => lag > 0)) return { log: [], effects: [] }
  const table = identifier(log.schema, 'effects').quoted
  const text = `select position::text, consumer from ${table} order by n`
  const effects = await store!.transaction(tx => tx.query<{ position: string; consumer: string }>(text))
  return { log: await readLog(store!), effects }
}

if (process.send !== undefined && process.argv[1] === fileURLToPath(import.meta.url)) {
  const report = (error: unknown): void => void process.send!({ error: (error as Error).stack })
  process.on('disconnect', () => process.exit())
  process.once('message', (options: WorkerOptions) => {
    start(options).then(work => {
      process.on('message', (task: Task) => {
        perform(work, task).then(answer => process.send!(answer), report)
      })
      process.send!({})
    }, report)
  })
}
