/**
 * Tenants: many stores that know nothing of each other, in one database or in many.
 *
 *     store.tenant('acme') ─► instance ─► gate ─► placements ─► the catalogue of one database   (tenancy: 'schema')
 *                                │                          └► directory ─► server ─► its pool  (tenancy: { directory })
 *                                └─ everything that a store has, on the schema `tenant_acme`
 *
 *     (none) ──ensure, import──► there ──drop──► (none)
 *                                  └──move──► there, on another server
 *
 * Guarantees:
 * - Everything of a tenant lives in its schema, and every statement names that schema: no setting of a connection decides
 *   whose data it is. Names that could be taken for each other are refused.
 * - A call without a tenant is refused (`TenantRequired`), one of a tenant that is not there fails at once
 *   (`TenantNotFound`), in every process; one that was made elsewhere a moment ago is there.
 * - Connections, listeners and idle statements do not grow with the number of tenants of a server.
 * - A tenant has one owner: a move ends at one server, or does not happen.
 *
 * What can fail: a server that is away fails the calls of its tenants only. A directory that is away fails those whose place
 * this process does not know.
 */
import { randomUUID } from 'node:crypto'
import type { DaemonOptions } from '../consumers/runners/daemon.ts'
import { InvalidOption } from '../core/errors.ts'
import { throwIfAborted } from '../core/lifecycle.ts'
import { checkWhole } from '../core/whole.ts'
import { identifier } from '../database/sql.ts'
import { library } from '../parts.ts'
import { openSchema } from '../schema/schema.ts'
import { TableRegistry } from '../schema/table.ts'
import { type ExportOptions, exportArchive } from '../transfer/export/export.ts'
import { importFromSchema, type SelectOptions, type SelectProgress } from '../transfer/export/from-schema.ts'
import { importArchive } from '../transfer/export/import.ts'
import type { ArchiveProgress, Manifest } from '../transfer/export/manifest.ts'
import { verifyArchive } from '../transfer/export/verify.ts'
import { reopen } from '../transfer/move/incoming.ts'
import type { Place } from '../transfer/place.ts'
import { shareSeats } from '../workflows/work/seats.ts'
import type { WorkerOptions } from '../workflows/work/worker.ts'
import type { Directory } from './directory.ts'
import { ForceRequired, TenancyRequired, TenantMoving, TenantNotFound } from './errors.ts'
import type { TenantInstance } from './instance.ts'
import { holdMs, type MovedTenant, type MoveTenantOptions, moveTenant } from './move.ts'
import type { Placement, Placements } from './placement.ts'
import { openRoster, type Roster, type Running } from './roster.ts'
import { readTenant, type TenantStatus } from './status.ts'
import { checkTenantName, tenantOfSchema } from './tenant-name.ts'

export interface EnsureOptions {
  /** The server of the directory. Default: the one with the fewest tenants. */
  server?: string | undefined
  signal?: AbortSignal | undefined
}

export interface ImportTenantOptions extends EnsureOptions {
  /** Default: the name of the one that was archived. */
  tenant?: string | undefined
  onProgress?: ((progress: ArchiveProgress) => void) | undefined
}

export interface ImportFromOptions extends SelectOptions {
  /** The schema to take from; it is only read. */
  readonly schema: string
  /** The server of the directory. Default: the one with the fewest tenants. */
  readonly server?: string | undefined
}

export interface SyncTenantsOptions {
  /** Default: all. */
  tenants?: readonly string[] | undefined
  /** How many at once. Default 4. */
  concurrency?: number | undefined
  onProgress?: ((progress: TenantsProgress) => void) | undefined
  signal?: AbortSignal | undefined
}

export interface TenantsProgress {
  readonly tenant: string
  readonly done: number
  readonly total: number
}

export interface SyncedTenant {
  readonly tenant: string
  /** What was made; empty if it was up to date. */
  readonly steps: readonly string[]
  /** Why it could not be synced. */
  readonly error?: unknown
}

export interface TenantsDaemonOptions extends Omit<DaemonOptions, 'onFailure'> {
  /** Which tenants. Default 'all', also those that come later. */
  tenants?: 'all' | readonly string[] | undefined
  /** Also runs handlers; `concurrency` is that of all tenants together, shared fairly. Default: it does not. */
  worker?: WorkerOptions | undefined
  /** How often each server is asked who has something to do. Default 1000. */
  pollMs?: number | undefined
  /** A tenant that has had nothing to do for so long costs nothing more. Default 5000. */
  restMs?: number | undefined
  onFailure?: ((tenant: string, error: unknown) => void) | undefined
}

export interface TenantsDaemon extends AsyncDisposable {
  /** Resolves when it has begun with the tenants that there are. */
  start(): Promise<void>
  stop(): Promise<void>
  readonly isRunning: boolean
  /** The tenants that have something to do, as far as is known here. */
  awake(): string[]
}

export interface Tenants {
  /** Makes a tenant, and brings the schema of one that is there up to date. May be called by many at once. */
  ensure(tenant: string, options?: EnsureOptions): Promise<Placement>
  exists(tenant: string): Promise<boolean>
  list(): Promise<Placement[]>
  /** Of one. */
  status(tenant: string): Promise<TenantStatus>
  /** Brings the schemas of all up to date; one that fails does not stop the others, and the next call goes on with it. */
  sync(options?: SyncTenantsOptions): Promise<SyncedTenant[]>
  /** Writes all a tenant has into a folder: a line for each row, a manifest with checksums. */
  archive(tenant: string, options: ExportOptions): Promise<Manifest>
  /** Makes a tenant of an archive, under the name it had or another; there must be none of that name, or an empty one. */
  import(input: string, options?: ImportTenantOptions): Promise<Placement & { manifest: Manifest }>
  /** Makes a tenant of some streams and documents of another schema in its database. Cut off, it goes on when called again. */
  importFrom(tenant: string, options: ImportFromOptions): Promise<Placement & { copied: SelectProgress }>
  /** Deletes a tenant with all it has. */
  drop(tenant: string, options: { force: true }): Promise<void>
  /** Runs the consumers, and if asked the handlers, of all tenants: only those that have something to do cost anything. */
  daemon(options?: TenantsDaemonOptions): TenantsDaemon
  /**
   * Moves a tenant to another server of the directory while it is used. Writers wait for a moment, or are told
   * `TenantMoving`. Interrupted, it goes on when it is called again; for the server where the tenant is, it is undone.
   */
  move(tenant: string, to: { server: string }, options?: MoveTenantOptions): Promise<MovedTenant>
  /** The servers of the directory. */
  servers(): Promise<string[]>
  /** Adds a server to the directory, or gives it another address. */
  addServer(name: string, options: { url: string }): Promise<void>
}

export interface TenantsParts<S> {
  readonly placements: Placements
  readonly directory: Directory | undefined
  instanceOf(tenant: string): TenantInstance<S>
  /** Takes an instance out, closed. */
  release(tenant: string): Promise<void>
}

export function openTenants<S>(parts: TenantsParts<S>): { tenants: Tenants; stopAll(): Promise<void> } {
  const { placements, directory, instanceOf } = parts
  const running = new Set<Roster>()

  const syncOne = async (placement: Placement, signal?: AbortSignal): Promise<readonly string[]> => {
    const { tenant, server, schema } = placement
    const database = await placements.databaseOf(server)
    // What is registered for a tenant may have to be stored: its schema comes first.
    const made = await openSchema(database, { schema, tables: new TableRegistry(), library }).sync({ signal })
    // Who had asked for the tenant before it was there could not register anything for it.
    if (!(await instanceOf(tenant).registered)) await parts.release(tenant)
    const { tables, registered } = instanceOf(tenant)
    await registered
    const added = await openSchema(database, { schema, tables, library }).sync({ signal })
    return [...made.steps, ...added.steps].map(({ object }) => object)
  }

  const placeOf = async ({ server, schema }: Placement): Promise<Place> => ({
    database: await placements.databaseOf(server),
    schema,
  })

  /** Where a tenant is, or is to be made: also where one of its name has moved away from before. */
  const settleAt = async (tenant: string, server: string | undefined): Promise<Placement> => {
    const placement = await placements.place(checkTenantName(tenant, placements.prefix), server)
    if (directory === undefined || placement.state !== 'active') return placement
    await reopen(await placeOf(placement), async () => {
      const now = await placements.find(tenant)
      if (now?.server === placement.server && now.epoch === placement.epoch) return
      throw new TenantMoving({ tenant, reason: 'it was taken to another server just now' })
    })
    return placement
  }

  const found = async (tenant: string): Promise<Placement> => {
    const placement = await placements.find(checkTenantName(tenant, placements.prefix))
    if (placement === undefined) throw new TenantNotFound({ tenant })
    return placement
  }

  /** Runs `work` while nobody can move the tenant: what it does to the schema would be done where it was. */
  const held = async (tenant: string, work: (placement: Placement) => Promise<void>): Promise<void> => {
    if (directory === undefined) return work(await found(tenant))
    const holder = randomUUID()
    const placement = await directory.hold(tenant, holder, holdMs)
    try {
      if (placement.state === 'moving')
        throw new TenantMoving({ tenant, reason: 'let the move end, or undo it, before it is dropped' })
      await work(placement)
    } finally {
      await directory.release(tenant, holder).catch(() => {})
    }
  }

  const tenants: Tenants = {
    async ensure(tenant, { server, signal } = {}) {
      const placement = await settleAt(tenant, server)
      await syncOne(placement, signal)
      return placement
    },
    exists: async tenant => (await placements.find(checkTenantName(tenant, placements.prefix))) !== undefined,
    list: () => placements.list(),
    async status(tenant) {
      const placement = await found(tenant)
      const { tables, log } = instanceOf(tenant)
      // Not by the tenant's own way, which is closed to one that is not ready for use.
      const database = await placements.databaseOf(placement.server)
      const schema = openSchema(database, { schema: placement.schema, tables, library })
      return readTenant(placement, { database, schema, log: { ...log, database } })
    },
    async sync({ tenants: chosen, concurrency = 4, onProgress, signal } = {}) {
      checkWhole('concurrency', concurrency, 1, 100)
      const all = chosen === undefined ? await placements.list() : await Promise.all(chosen.map(found))
      const synced: SyncedTenant[] = []
      const queue = [...all]
      const work = async (): Promise<void> => {
        for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
          throwIfAborted(signal)
          const { tenant } = next
          const outcome = await syncOne(next, signal).then(
            steps => ({ tenant, steps }),
            (error: unknown) => ({ tenant, steps: [], error }),
          )
          synced.push(outcome)
          onProgress?.({ tenant, done: synced.length, total: all.length })
        }
      }
      await Promise.all(Array.from({ length: Math.min(concurrency, all.length) }, work))
      return synced.sort((a, b) => (a.tenant < b.tenant ? -1 : 1))
    },
    async archive(tenant, options) {
      return exportArchive(await placeOf(await found(tenant)), options)
    },
    async import(input, { tenant, server, onProgress, signal } = {}) {
      const { schema } = await verifyArchive(input, { signal })
      const name = tenant ?? tenantOfSchema(schema, placements.prefix)
      if (name === undefined)
        throw new InvalidOption({ option: 'tenant', reason: `is needed: the archive is of schema "${schema}"` })
      const placement = await settleAt(name, server)
      const manifest = await importArchive(await placeOf(placement), { input, onProgress, signal })
      await syncOne(placement, signal)
      return { ...placement, manifest }
    },
    async importFrom(tenant, { schema, server, ...options }) {
      const placement = await settleAt(tenant, server)
      const target = await placeOf(placement)
      const copied = await importFromSchema({ ...target, schema }, target, options)
      await syncOne(placement, options.signal)
      return { ...placement, copied }
    },
    async drop(tenant, { force } = { force: false } as never) {
      if (force !== true) throw new ForceRequired({ what: `Dropping tenant "${tenant}"` })
      await held(checkTenantName(tenant, placements.prefix), async placement => {
        await parts.release(tenant)
        const database = await placements.databaseOf(placement.server)
        const text = `drop schema if exists ${identifier(placement.schema)} cascade`
        await database.run({ label: 'tenants.drop', text, values: [] })
        await placements.forget(tenant)
      })
    },
    daemon: (options = {}) => openDaemon(parts, options, running),
    async move(tenant, { server }, options) {
      if (directory === undefined) throw new TenancyRequired({ call: 'tenants.move' })
      const moved = await moveTenant(
        { placements, directory },
        checkTenantName(tenant, placements.prefix),
        server,
        options,
      )
      instanceOf(tenant).gate.forget()
      return moved
    },
    servers: () => placements.servers(),
    async addServer(name, { url }) {
      if (directory === undefined) throw new TenancyRequired({ call: 'tenants.addServer' })
      await directory.addServer(name, url)
    },
  }
  return {
    tenants,
    async stopAll() {
      await Promise.all([...running].map(roster => roster.stop()))
    },
  }
}

function openDaemon<S>(
  { placements, instanceOf }: TenantsParts<S>,
  options: TenantsDaemonOptions,
  running: Set<Roster>,
): TenantsDaemon {
  const { tenants = 'all', worker, pollMs = 1000, restMs = 5000, onFailure, ...daemonOptions } = options
  checkWhole('pollMs', pollMs, 1)
  checkWhole('restMs', restMs, 0)
  if (tenants !== 'all' && !Array.isArray(tenants))
    throw new InvalidOption({ option: 'tenants', reason: `must be 'all' or a list of names` })
  if (tenants !== 'all') for (const tenant of tenants) checkTenantName(tenant, placements.prefix)
  const seatsFor = shareSeats(worker?.concurrency ?? 16)

  const start = async (instance: TenantInstance<S>): Promise<Running> => {
    const told = { onFailure: (_: string, error: unknown) => onFailure?.(instance.tenant, error) }
    const ours = [
      instance.daemon({ ...daemonOptions, ...told }),
      ...(worker === undefined ? [] : [instance.worker(worker, seatsFor())]),
    ]
    const stop = async (): Promise<void> => void (await Promise.all(ours.map(each => each.stop())))
    try {
      for (const each of ours) await each.start()
    } catch (error) {
      await stop()
      throw error
    }
    return { stop }
  }

  const roster = openRoster(placements, { tenants, pollMs, restMs, instanceOf, start, onFailure })
  const stop = async (): Promise<void> => {
    await roster.stop()
    running.delete(roster)
  }
  return {
    async start() {
      running.add(roster)
      await roster.start()
    },
    stop,
    get isRunning() {
      return roster.isRunning
    },
    awake: () => roster.awake(),
    [Symbol.asyncDispose]: stop,
  }
}
