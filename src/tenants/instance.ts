/** The store of one tenant in this process, with what those who run it for all tenants need of it. */
import type { Consumers } from '../consumers/consumers.ts'
import type { Daemon, DaemonOptions } from '../consumers/runners/daemon.ts'
import type { Log } from '../events/log.ts'
import type { Wake } from '../events/order/wake.ts'
import type { Schema } from '../schema/schema.ts'
import type { TableRegistry } from '../schema/table.ts'
import type { Seats } from '../workflows/work/seats.ts'
import type { Worker, WorkerOptions } from '../workflows/work/worker.ts'
import type { Gate } from './tenant-database.ts'

export interface TenantInstance<S> {
  readonly tenant: string
  readonly store: S
  readonly gate: Gate
  readonly schema: Schema
  readonly tables: TableRegistry
  readonly log: Log
  readonly wake: Wake
  readonly consumers: Consumers
  /** Resolves when all that is registered for the tenant is active; to false if it could not be made so. */
  readonly registered: Promise<boolean>
  daemon(options: DaemonOptions): Daemon
  worker(options: WorkerOptions, seats?: Seats): Worker
  /** Deletes what is old, a few times a day, until the function returned is called. */
  tend(): () => void
  close(): Promise<void>
}
