/**
 * Tenants: many separate stores, in one database or on many servers.
 *
 *     store.tenant('acme') ─► instance ─► tenantDatabase ─► placements ─┬► the catalogue of one database   tenancy: 'schema'
 *                                │                                      └► directory ─► server ─► its pool  tenancy: { directory }
 *                                └─ everything that a store has, in the schema `tenant_acme`
 *
 *     (none) ──ensure, import──► exists ──drop──► (none)
 *                                  └──move──► exists, on another server
 *
 *     tenancy          opens it all, and the store of the current tenant        tenantsRunner    runs those that have work
 *     placement        one database: a schema per tenant                        moveTenant       from server to server
 *     directory        many servers: a row per tenant                           status, tenantName
 *
 * Guarantees:
 * - Everything of a tenant lives in its schema, and every statement names that schema: no setting of a connection
 *   decides which data is read. Names that could be confused with each other are refused.
 * - A call without a tenant is refused (`TenantRequired`). A call for a tenant that does not exist fails at once, in every
 *   process (`TenantNotFound`); a tenant that another process has just made exists.
 * - Connections, listeners and statements of idle tenants do not grow with the number of tenants on a server.
 * - A tenant has one owner: a move ends on one server, or does not happen.
 *
 * What can fail: a server that cannot be reached fails the calls of its own tenants. A directory that cannot be reached
 * fails the calls of tenants whose server this process does not know yet.
 */

import type { Audit, AuditedAction, OpenAudit } from '../audit/audit.ts'
import { shareConcurrency } from '../consumers/runners/concurrency.ts'
import { type Runner, type RunnerOptions, startOptionNames } from '../consumers/runners/runner.ts'
import { throwIfAborted } from '../core/abort.ts'
import { InvalidOption } from '../core/errors.ts'
import { randomId } from '../core/host.ts'
import { checkWhole, refuseUnknownOptions, refusingUnknownOptions } from '../core/options.ts'
import { type Page, type PageOptions, pageOfAll, pageOptionNames } from '../core/page.ts'
import { openServices, type Service, type Services } from '../core/service.ts'
import { identifier } from '../database/sql.ts'
import { library } from '../parts.ts'
import { openSchema } from '../schema/schema.ts'
import { TableRegistry } from '../schema/table.ts'
import { type ExportOptions, exportOptionNames, exportStore } from '../transfer/export/export.ts'
import { importOptionNames, importStore, type StoreImportOptions } from '../transfer/export/import.ts'
import { type ExportManifest, verifyExport } from '../transfer/export/manifest.ts'
import { importSelection, type SelectionOptions, type SelectionProgress } from '../transfer/export/selection.ts'
import { freeMovedName } from '../transfer/move/moved-marker.ts'
import type { StoreLocation } from '../transfer/transfer.ts'
import type { Cluster, ClusterMoveOptions, Rebalanced, RebalanceOptions } from './cluster.ts'
import type { Directory } from './directory.ts'
import { ClusterRequired, ForceRequired, TenancyRequired, TenantMoving, TenantNotFound } from './errors.ts'
import { readLogHeads } from './has-work.ts'
import { holdMs, type MovedTenant, type MoveTenantOptions, moveTenant } from './move-tenant.ts'
import type { Placement, Placements } from './placement.ts'
import { markPrefix, refuseOtherPrefix } from './prefix-mark.ts'
import { readTenantStatus, type TenantStatus } from './status.ts'
import type { TenantInstance } from './tenancy.ts'
import { checkTenantName, tenantOfSchema } from './tenant-name.ts'
import type { TenantsAudit } from './tenants-audit.ts'
import { openTenantsRunner, type StartedTenant } from './tenants-runner.ts'

export interface EnsureOptions {
  /** A server of the directory. Default: the one with the fewest tenants. */
  server?: string | undefined
  signal?: AbortSignal | undefined
}

export interface ImportTenantOptions extends StoreImportOptions {
  /** Default: the name of the tenant that was exported. */
  readonly tenant?: string | undefined
  /** A server of the directory. Default: the one with the fewest tenants. */
  readonly server?: string | undefined
}

export interface ImportFromOptions extends SelectionOptions {
  /** The schema to copy from. It is only read. */
  readonly schema: string
  /** A server of the directory. Default: the one with the fewest tenants. */
  readonly server?: string | undefined
}

export interface SyncTenantsOptions {
  /** Default: all. */
  tenants?: readonly string[] | undefined
  /** How many at the same time. Default 4. */
  concurrency?: number | undefined
  onProgress?: ((progress: TenantsProgress) => void) | undefined
  signal?: AbortSignal | undefined
}

export interface TenantHead {
  readonly tenant: string
  readonly server: string
  /** The highest position drawn; undefined if its server did not answer, or it has no store yet. */
  readonly head: number | undefined
}

export interface TenantsProgress {
  readonly tenant: string
  readonly done: number
  readonly total: number
}

export interface SyncedTenant {
  readonly tenant: string
  /** The objects that were made; empty if it was up to date. */
  readonly steps: readonly string[]
  /** Why it could not be synced. */
  readonly error?: unknown
}

export interface TenantsStartOptions extends RunnerOptions {
  /** Which tenants. Default 'all', also those that are made later. */
  tenants?: 'all' | readonly string[] | undefined
  /** How often each server is asked which tenants have work. Default 1000. */
  pollMs?: number | undefined
  /** How long a tenant must have had nothing to do before it is stopped here. Default 5000. */
  idleMs?: number | undefined
  /** Called when a tenant, or one of its definitions, has failed. `'*'` stands for the list of tenants. */
  onFailure?: ((tenant: string, error: unknown) => void) | undefined
}

/** Runs many tenants in one process. */
export interface RunningTenants extends Runner {
  /** The tenants that have work, as far as this process knows. */
  active(): string[]
}

export interface Tenants {
  /** Makes a tenant, or brings the schema of an existing one up to date. Many processes may call it at the same time. */
  ensure(tenant: string, options?: EnsureOptions): Promise<Placement>
  exists(tenant: string): Promise<boolean>
  /** By name. */
  list(options?: PageOptions): Promise<Page<Placement>>
  status(tenant: string): Promise<TenantStatus>
  /** The last position of each tenant, by name: one statement a server, however many tenants there are. */
  heads(): Promise<TenantHead[]>
  /** Brings the schemas of all tenants up to date. A tenant that fails does not stop the others; the next call retries it. */
  sync(options?: SyncTenantsOptions): Promise<SyncedTenant[]>
  /** Exports everything of a tenant into a folder: a line for each row, and a manifest with checksums. */
  export(tenant: string, options: ExportOptions): Promise<ExportManifest>
  /** Makes a tenant from an export, under its own or another name. A tenant of that name must not exist, or be empty. */
  import(options: ImportTenantOptions): Promise<Placement & { manifest: ExportManifest }>
  /** Makes a tenant from streams and documents of another schema. After an interruption the next call continues. */
  importFrom(tenant: string, options: ImportFromOptions): Promise<Placement & { copied: SelectionProgress }>
  /** Deletes a tenant with everything it has. */
  drop(tenant: string, options: { force: true }): Promise<void>
  /**
   * Moves a tenant to another server of the directory, or node of a Citus cluster, while it is in use. Writers wait for a
   * moment, or, between servers of a directory, get `TenantMoving`. After an interruption the next call continues; a call for the server that has the tenant undoes it.
   */
  move(tenant: string, to: { server: string }, options?: MoveTenantOptions): Promise<MovedTenant>
  /** On a Citus cluster: moves tenants until the nodes are about equally full. */
  rebalance(options?: RebalanceOptions): Promise<Rebalanced>
  /** The names of the servers; on a Citus cluster its nodes. */
  servers(options?: PageOptions): Promise<Page<string>>
  /** Adds a server to the directory, or changes its address. */
  addServer(name: string, options: { url: string }): Promise<void>
  /** The actions of operators on tenants as a whole: they made, imported, moved and dropped them, and added servers. */
  readonly audit: Audit
}

export interface TenantsParts<S> {
  readonly placements: Placements
  readonly directory: Directory | undefined
  readonly operators: TenantsAudit
  instanceOf(tenant: string): TenantInstance<S>
  /** Closes an instance and forgets it. */
  release(tenant: string): Promise<void>
}

export interface OpenTenants {
  readonly tenants: Tenants
  start(options?: TenantsStartOptions): Promise<RunningTenants>
  stopAll(): Promise<void>
}

export function openTenants<S>(parts: TenantsParts<S>): OpenTenants {
  const { placements, directory, operators, instanceOf } = parts
  const services = openServices()

  const syncOne = async (placement: Placement, signal?: AbortSignal): Promise<readonly string[]> => {
    const { tenant, server, schema } = placement
    const database = await placements.databaseOf(server)
    // First the schema itself, because registering may have to store something in it.
    const made = await openSchema(database, { schema, tables: new TableRegistry(), library }).sync({ signal })
    await markPrefix(database, schema, placements.prefix)
    // An instance from before the tenant existed could not register anything, so it is replaced.
    if (!(await instanceOf(tenant).registered)) await parts.release(tenant)
    const { tables, registered } = instanceOf(tenant)
    await registered
    const added = await openSchema(database, { schema, tables, library }).sync({ signal })
    return [...made.steps, ...added.steps].map(({ object }) => object)
  }

  const locationOf = async ({ server, schema }: Placement): Promise<StoreLocation> => ({
    database: await placements.databaseOf(server),
    schema,
  })

  /** The placement of a tenant that exists or is about to be made, also where one of its name has moved away before. */
  const placeFor = async (tenant: string, server: string | undefined): Promise<Placement> => {
    const placement = await placements.place(checkTenantName(tenant, placements.prefix), server)
    await refuseOtherPrefix(await placements.databaseOf(placement.server), placement.schema, placements.prefix)
    if (directory === undefined || placement.state !== 'active') return placement
    await freeMovedName(await locationOf(placement), async () => {
      const now = await placements.find(tenant)
      if (now?.server === placement.server && now.epoch === placement.epoch) return
      throw new TenantMoving({ tenant, reason: 'it was just moved to another server' })
    })
    return placement
  }

  const findExisting = async (tenant: string): Promise<Placement> => {
    const placement = await placements.find(checkTenantName(tenant, placements.prefix))
    if (placement === undefined) throw new TenantNotFound({ tenant })
    return placement
  }

  /** A tenant's audit is in its schema, so it can be written once the tenant has been made. */
  const recordMade = async ({ tenant, server }: Placement, action: string, parameters: object): Promise<void> => {
    const { audit, log } = instanceOf(tenant)
    await audit.recordDone({ action, target: tenant, parameters: { server, ...parameters } }, log.database)
  }

  /** In the tenant's own audit, whose table the sync may have made. */
  const recordSynced = async ({ tenant }: Placement, { steps, error }: SyncedTenant): Promise<void> => {
    if (steps.length === 0 && error === undefined) return
    const { audit, log } = instanceOf(tenant)
    const action = { action: 'schema.sync', parameters: { tenant } }
    if (error !== undefined) return audit.recordFailed(action, error)
    await audit.recordDone(action, log.database, { steps: steps.length })
  }

  /** Runs `work` while no process can move the tenant: otherwise it would act on the server that the tenant has left. */
  const whileHeld = async (tenant: string, work: (placement: Placement) => Promise<void>): Promise<void> => {
    if (directory === undefined) return work(await findExisting(tenant))
    const holder = randomId()
    const placement = await directory.hold(tenant, holder, holdMs)
    try {
      if (placement.state === 'moving')
        throw new TenantMoving({ tenant, reason: 'complete or undo the move before you drop it' })
      await work(placement)
    } finally {
      await directory.release(tenant, holder).catch(() => {})
    }
  }

  const moveInCluster = async (
    cluster: Cluster,
    tenant: string,
    node: string,
    { onProgress, signal }: MoveTenantOptions = {},
  ): Promise<MovedTenant> => {
    const before = await findExisting(tenant)
    if (before.server === node) return { ...before, moved: undefined }
    const onBytes: ClusterMoveOptions['onProgress'] = ({ copiedBytes, bytes }) =>
      onProgress?.({ phase: 'copying', table: '', rows: 0, totalRows: 0, copiedBytes, totalBytes: bytes })
    await cluster.move(before.schema, node, { onProgress: onProgress && onBytes, signal })
    const placement = await findExisting(tenant)
    await recordMade(placement, 'tenants.move', {})
    return { ...placement, moved: undefined }
  }

  const calls = refusingUnknownOptions<Omit<Tenants, 'audit'>>(
    'store.tenants',
    {
      async ensure(tenant, { server, signal } = {}) {
        const recordIn = async (store: OpenAudit, steps: number): Promise<void> =>
          store.recordDone({ action: 'tenants.ensure', target: tenant, parameters: { server, steps } }, placements.home)
        try {
          const placement = await placeFor(tenant, server)
          const steps = await syncOne(placement, signal)
          if (steps.length > 0) {
            await recordMade(placement, 'tenants.ensure', { steps: steps.length })
            await recordIn(await operators.open(), steps.length)
          }
          return placement
        } catch (error) {
          const action = { action: 'tenants.ensure', target: tenant, parameters: { server } }
          await operators.open().then(
            store => store.recordFailed(action, error),
            () => {},
          )
          throw error
        }
      },
      exists: async tenant => (await placements.find(checkTenantName(tenant, placements.prefix))) !== undefined,
      list: async (options = {}) =>
        pageOfAll('store.tenants.list', await placements.list(), options, ({ tenant }) => tenant),
      async status(tenant) {
        const placement = await findExisting(tenant)
        const { tables, log } = instanceOf(tenant)
        // Not through the tenant's own database, which refuses a tenant that is not ready for use.
        const database = await placements.databaseOf(placement.server)
        const schema = openSchema(database, { schema: placement.schema, tables, library })
        return readTenantStatus(placement, { database, schema, log: { ...log, database } })
      },
      async heads() {
        const all = await placements.list()
        const servers = new Set(all.map(({ server }) => server))
        const asked = await Promise.all(
          [...servers].map(async server => {
            const asking = placements.databaseOf(server).then(database => readLogHeads(database, placements.prefix))
            return [server, await asking.catch(() => new Map<string, number>())] as const
          }),
        )
        const heads = new Map(asked)
        return all
          .map(({ tenant, server, schema }) => ({ tenant, server, head: heads.get(server)?.get(schema) }))
          .sort((a, b) => (a.tenant < b.tenant ? -1 : 1))
      },
      async sync({ tenants: chosen, concurrency = 4, onProgress, signal } = {}) {
        checkWhole('concurrency', concurrency, 1, 100)
        const all = chosen === undefined ? await placements.list() : await Promise.all(chosen.map(findExisting))
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
            await recordSynced(next, outcome)
            synced.push(outcome)
            onProgress?.({ tenant, done: synced.length, total: all.length })
          }
        }
        await Promise.all(Array.from({ length: Math.min(concurrency, all.length) }, work))
        return synced.sort((a, b) => (a.tenant < b.tenant ? -1 : 1))
      },
      async export(tenant, options) {
        return exportStore(await locationOf(await findExisting(tenant)), options)
      },
      async import({ tenant, server, ...options }) {
        const { schema } = await verifyExport(options.input, { signal: options.signal })
        const name = tenant ?? tenantOfSchema(schema, placements.prefix)
        if (name === undefined)
          throw new InvalidOption({
            option: 'tenant',
            reason: `The option "tenant" is needed, because the export is of schema "${schema}", which is not that of a tenant.`,
          })
        const placement = await placeFor(name, server)
        const manifest = await importStore(await locationOf(placement), options)
        await syncOne(placement, options.signal)
        await recordMade(placement, 'tenants.import', { input: options.input })
        return { ...placement, manifest }
      },
      async importFrom(tenant, { schema, server, ...options }) {
        const placement = await placeFor(tenant, server)
        const target = await locationOf(placement)
        const copied = await importSelection({ ...target, schema }, target, options)
        await syncOne(placement, options.signal)
        await recordMade(placement, 'tenants.importFrom', { schema })
        return { ...placement, copied }
      },
      async drop(tenant, { force } = { force: false } as never) {
        if (force !== true) throw new ForceRequired({ what: `Dropping tenant "${tenant}"` })
        await whileHeld(checkTenantName(tenant, placements.prefix), async placement => {
          await parts.release(tenant)
          const database = await placements.databaseOf(placement.server)
          const text = `drop schema if exists ${identifier(placement.schema)} cascade`
          await database.run({ label: 'tenants.drop', text, values: [] })
          await placements.forget(tenant)
        })
      },
      async move(tenant, { server }, options) {
        checkTenantName(tenant, placements.prefix)
        if (placements.cluster !== undefined) return moveInCluster(placements.cluster, tenant, server, options)
        if (directory === undefined) throw new TenancyRequired({ call: 'tenants.move' })
        const moved = await moveTenant({ placements, directory }, tenant, server, options)
        instanceOf(tenant).tenantDatabase.forget()
        // Not before: a move that was interrupted continues, and until then no row of the tenant can be written.
        const placement = await findExisting(tenant)
        await markPrefix(await placements.databaseOf(placement.server), placement.schema, placements.prefix)
        await recordMade(placement, 'tenants.move', {})
        return moved
      },
      async rebalance(options) {
        if (placements.cluster === undefined) throw new ClusterRequired({ call: 'tenants.rebalance' })
        return placements.cluster.rebalance(options)
      },
      servers: async (options = {}) =>
        pageOfAll('store.tenants.servers', await placements.servers(), options, name => name),
      async addServer(name, { url }) {
        if (directory === undefined) throw new TenancyRequired({ call: 'tenants.addServer' })
        await directory.addServer(name, url)
      },
    },
    optionsOfCalls,
  )
  const acting = async <T>(action: AuditedAction, work: () => Promise<T>): Promise<T> =>
    (await operators.open()).record(action, work)
  const tenants: Tenants = {
    ...calls,
    audit: operators.audit,
    drop: (tenant, options) => acting({ action: 'tenants.drop', target: tenant }, () => calls.drop(tenant, options)),
    move: (tenant, to, options) =>
      acting({ action: 'tenants.move', target: tenant, parameters: { ...to, ...options } }, () =>
        calls.move(tenant, to, options),
      ),
    rebalance: options =>
      acting({ action: 'tenants.rebalance', parameters: { ...options } }, () => calls.rebalance(options)),
    import: options =>
      acting({ action: 'tenants.import', target: options.tenant, parameters: { ...options } }, () =>
        calls.import(options),
      ),
    importFrom: (tenant, options) =>
      acting({ action: 'tenants.importFrom', target: tenant, parameters: { ...options } }, () =>
        calls.importFrom(tenant, options),
      ),
    addServer: (name, options) =>
      acting({ action: 'tenants.addServer', target: name }, () => calls.addServer(name, options)),
  }
  return { tenants, start: (options = {}) => startTenants(parts, options, services), stopAll: () => services.close() }
}

const optionsOfCalls = {
  ensure: [1, ['server', 'signal']],
  list: [0, pageOptionNames],
  sync: [0, ['tenants', 'concurrency', 'onProgress', 'signal']],
  export: [1, exportOptionNames],
  import: [0, ['tenant', 'server', ...importOptionNames]],
  drop: [1, ['force']],
  servers: [0, pageOptionNames],
  addServer: [1, ['url']],
} as const

async function startTenants<S>(
  { placements, instanceOf }: TenantsParts<S>,
  options: TenantsStartOptions,
  services: Services,
): Promise<RunningTenants> {
  refuseUnknownOptions('store.start', options, ['tenants', 'pollMs', 'idleMs', 'onFailure', ...startOptionNames])
  const { tenants = 'all', pollMs = 1000, idleMs = 5000, onFailure, ...runnerOptions } = options
  checkWhole('pollMs', pollMs, 1)
  checkWhole('idleMs', idleMs, 0)
  if (tenants !== 'all' && !Array.isArray(tenants))
    throw new InvalidOption({ option: 'tenants', reason: `The option "tenants" must be 'all' or a list of names.` })
  if (tenants !== 'all') for (const tenant of tenants) checkTenantName(tenant, placements.prefix)
  const share = shareConcurrency(runnerOptions.concurrency ?? 16)

  const id = randomId()
  const running = new Set<Runner>()
  let isPaused = runnerOptions.paused ?? false

  const start = async (instance: TenantInstance<S>): Promise<StartedTenant> => {
    const runner = await instance.start(
      { ...runnerOptions, paused: isPaused },
      { share: share(), onFailure: (_, error) => onFailure?.(instance.tenant, error) },
    )
    running.add(runner)
    return {
      async stop() {
        running.delete(runner)
        await runner.stop()
      },
    }
  }
  const setPaused = async (to: boolean): Promise<void> => {
    isPaused = to
    await Promise.all([...running].map(runner => (to ? runner.pause() : runner.resume())))
  }
  const tenantsRunner = openTenantsRunner(placements, { tenants, pollMs, idleMs, instanceOf, start, onFailure })
  const service = await services.start(tenantsRunner)
  const control: Omit<RunningTenants, keyof Service> = {
    id,
    name: runnerOptions.name,
    get role() {
      return isPaused ? 'paused' : ([...running][0]?.role ?? 'active')
    },
    holds: () => [...running].flatMap(runner => runner.holds()),
    pause: () => setPaused(true),
    resume: () => setPaused(false),
    active: tenantsRunner.active,
  }
  return Object.defineProperties(service, Object.getOwnPropertyDescriptors(control)) as RunningTenants
}
