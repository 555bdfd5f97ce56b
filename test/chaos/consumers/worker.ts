/**
 * The program of a worker: a daemon whose consumers write one row per event.
 *
 * A gate may be put before its batches, so that it can be stopped at the worst moment: when it has read its events and
 * not begun with them. While a batch stands there the process does not look after its leases either, so that nothing
 * but the fence tells it that it is late. Without the fence (`isUnfenced`) its batches stand whatever has happened.
 */

import { fileURLToPath } from 'node:url'
import { type Consumer, consumer } from '../../../src/consumers/consumer.ts'
import { openConsumers } from '../../../src/consumers/consumers.ts'
import { pause, reset, resume } from '../../../src/consumers/operator.ts'
import { type Daemon, openDaemons } from '../../../src/consumers/runners/daemon.ts'
import { readStatus } from '../../../src/consumers/status.ts'
import { systemClock } from '../../../src/core/clock.ts'
import { uuidv7Ids } from '../../../src/core/id.ts'
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
import { times } from '../pace.ts'
import { type Gate, openGate } from './gate.ts'

export interface WorkerOptions {
  readonly schema: string
  readonly consumers: readonly string[]
  readonly leaseMs: number
  /** On a server. */
  readonly url?: string
  /** Embedded; then the process also appends. */
  readonly folder?: string
  /** How it is called in the rows it writes. */
  readonly name?: string
  readonly batchSize?: number
  readonly node?: string
  readonly standby?: boolean
  readonly isUnfenced?: boolean
  /** The gate closes after so many batches. */
  readonly closeGateAfter?: number
  /** How long a connection may be silent. */
  readonly answerTimeoutMs?: number
}

export type Task =
  | { readonly kind: 'holds' | 'open' }
  | { readonly kind: 'pause' | 'resume'; readonly consumer: string }
  | { readonly kind: 'reset'; readonly consumer: string; readonly position: string }
  /** Embedded: whether all consumers have reached the end of the log, and then all that is there. */
  | { readonly kind: 'read' }
  /** Embedded: goes on appending until it is killed. */
  | { readonly kind: 'append'; readonly callers: number }

export interface Answer {
  readonly holds: string[]
  readonly role: string | undefined
  readonly isRunning: boolean
  /** Batches that stand at the gate, and batches that have gone through it and come to an end, by how they ended. */
  readonly waiting: number
  readonly ends: readonly string[]
  readonly appended: number
  /** Filled by `read`. */
  readonly events: readonly { readonly position: string; readonly stream: string }[]
  readonly effects: readonly { readonly position: string; readonly consumer: string }[]
}

interface Work {
  readonly log: Log
  readonly wake: Wake
  readonly daemon: Daemon
  readonly gate: Gate
  readonly store: Store | undefined
  appended: number
}

async function start(options: WorkerOptions): Promise<Work> {
  const { schema, url, folder, answerTimeoutMs, node, standby, leaseMs } = options
  const pool = { url: url!, maxConnections: 6, answerTimeoutMs }
  const database = folder === undefined ? await openPostgres(pool) : await openPglite({ folder })
  const gate = openGate(database, { isUnfenced: options.isUnfenced ?? false })
  if (options.closeGateAfter !== undefined) gate.close(options.closeGateAfter)
  const log: Log = {
    database: gate.database,
    schema,
    names: logNames(schema),
    channel: schema,
    clock: systemClock,
    ids: uuidv7Ids({ clock: systemClock }),
    telemetry: openTelemetry(undefined),
    definitions: { schemas: new Map() },
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
  const daemon = openDaemons(consumers).daemon({ node, standby, leaseMs })
  await daemon.start()
  return { log, wake, daemon, gate, store, appended: 0 }
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
  const { log, wake, daemon, gate, store } = work
  if (task.kind === 'open') gate.open()
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
  const read = task.kind === 'read' ? await readAll(work) : { events: [], effects: [] }
  return {
    ...read,
    holds: daemon.holds(),
    role: daemon.role,
    isRunning: daemon.isRunning,
    waiting: gate.waiting(),
    ends: gate.ends(),
    appended: work.appended,
  }
}

/** Nothing while there is a consumer that is not at the end. */
async function readAll({ log, store }: Work): Promise<Pick<Answer, 'events' | 'effects'>> {
  if ((await readStatus(log)).some(({ lag }) => lag > 0)) return { events: [], effects: [] }
  const events = await store!.events.readAll().toArray()
  const table = identifier(log.schema, 'effects').quoted
  const text = `select position::text, consumer from ${table} order by n`
  const effects = await store!.transaction(tx => tx.query<{ position: string; consumer: string }>(text))
  return { events: events.map(({ position, stream }) => ({ position: position.toString(), stream })), effects }
}

if (process.send !== undefined && process.argv[1] === fileURLToPath(import.meta.url)) {
  const told = (error: unknown): void => void process.send!({ error: (error as Error).stack })
  process.on('disconnect', () => process.exit())
  process.once('message', (options: WorkerOptions) => {
    start(options).then(work => {
      process.on('message', (task: Task) => {
        perform(work, task).then(answer => process.send!(answer), told)
      })
      process.send!({})
    }, told)
  })
}
