/**
 * Opening a store. `assemble.ts` puts its parts together.
 *
 *     await using store = await openStore()                     embedded, in ./.rillflow
 *     await using store = await openStore({ memory: true })     embedded, deleted when closed
 *     await using store = await openStore({ url, migrate: true })
 */

import type { Aggregate } from './aggregates/aggregate.ts'
import type { Repository } from './aggregates/repository.ts'
import type { Snapshotter } from './aggregates/snapshotter.ts'
import { type Assembled, type AssembleOptions, assemble } from './assemble.ts'
import type { Audit } from './audit/audit.ts'
import type { ConsumerAdministration } from './consumers/administration.ts'
import type { DeadLetters } from './consumers/dead-letters/dead-letters.ts'
import type { Processor } from './consumers/processor.ts'
import type { Runner, RunnerOptions } from './consumers/runners/runner.ts'
import type { Runners } from './consumers/runners/runners.ts'
import { once } from './core/abort.ts'
import type { Clock } from './core/clock.ts'
import type { Named } from './core/definition.ts'
import { InvalidOption, isRillflowError } from './core/errors.ts'
import type { Ids } from './core/id.ts'
import { uuidv7Ids } from './core/id.ts'
import { optionNames, refuseUnknownOptions } from './core/options.ts'
import type { Database, Transaction, TransactionOptions } from './database/database.ts'
import { lendDatabase } from './database/handle.ts'
import type { PostgresOptions } from './database/postgres/postgres.ts'
import type { Collection } from './documents/collection.ts'
import type { AppendDefaults } from './events/append/prepare.ts'
import type { EventDefinitions, EventMap, EventsAccepted, UntypedEvents } from './events/definition.ts'
import type { Events } from './events/events.ts'
import type { Upcaster } from './events/read/upcast.ts'
import type { Streams } from './events/streams/streams.ts'
import { library } from './parts.ts'
import type { Projection } from './projections/projection.ts'
import type { Projections } from './projections/projections.ts'
import type { OpenDocuments, OpenRows } from './projections/read.ts'
import type { States } from './projections/states.ts'
import { type MigrateMode, openSchema, type Schema } from './schema/schema.ts'
import {
  type HttpHandler,
  type HttpOptions,
  openServers,
  type ServerOptions,
  type StoreServer,
} from './server/server.ts'
import type { DecideOn, Handle } from './sessions/handle.ts'
import type { Session, SessionOptions } from './sessions/session.ts'
import { checkStoreOptions } from './store-options.ts'
import type { Subscription } from './subscriptions/subscription.ts'
import type { Subscribe, Subscriptions } from './subscriptions/subscriptions.ts'
import type { Trace, TraceOptions } from './telemetry/breadcrumbs.ts'
import type { Counter } from './telemetry/metrics.ts'
import type { SlowStatementOptions } from './telemetry/slow-statements.ts'
import { type Logger, openTelemetry } from './telemetry/telemetry.ts'
import { TenantRequired } from './tenants/errors.ts'
import { currentTenantStore, openTenancy, type Tenancy } from './tenants/tenancy.ts'
import type { RunningTenants, Tenants, TenantsStartOptions } from './tenants/tenants.ts'
import type { BackupOptions, BackupResult } from './transfer/backup/backup.ts'
import type { ExportOptions } from './transfer/export/export.ts'
import type { StoreImportOptions } from './transfer/export/import.ts'
import type { ExportManifest } from './transfer/export/manifest.ts'
import type { DeploymentCheck, DeploymentOptions } from './upkeep/deployment/deployment.ts'
import type { Diagnosis, DoctorOptions } from './upkeep/doctor/doctor.ts'
import type { ExplainTarget, Explanation } from './upkeep/explain/explain.ts'
import type { RetentionOptions } from './upkeep/retention.ts'
import type { UpkeepOptions, UpkeepReport } from './upkeep/upkeep.ts'
import type { Handler } from './workflows/handler.ts'
import type { Schedule } from './workflows/schedules/schedule.ts'
import type { WorkflowDefinition, WorkflowOptions, Workflows } from './workflows/workflows.ts'

/**
 * Where a store is, and what is defined in it.
 *
 * @example
 * ```ts
 * const options: StoreOptions = { memory: true, logger: false }
 * await (await openStore(options)).close()
 * ```
 */
export interface StoreOptions<M extends EventMap = UntypedEvents> extends PostgresOptions, SlowStatementOptions {
  /** The events of the store, from `defineEvents`: their types, and the schemas that check them. */
  events?: EventDefinitions<M> | undefined
  /** The folder of the embedded store. Default `./.rillflow`. */
  folder?: string | undefined
  /** An embedded store in memory: its data is lost when it is closed. Default false. */
  memory?: boolean | undefined
  /** The schema that holds everything of this store. Default `rillflow`. */
  schema?: string | undefined
  /** Whether to bring the schema up to date: true, false to refuse an outdated one, 'manual' to leave it to `store.schema`. Default: true embedded, false on a server. */
  migrate?: boolean | 'manual' | undefined
  /** The channel of wake-ups between processes. Default `rillflow_events`. */
  channel?: string | undefined
  upcasters?: readonly Upcaster[] | undefined
  /** Check events against their schema when they are read, too. Default false. */
  validateOnRead?: boolean | undefined
  /** The largest data, and headers, of one event. Default 1 MiB. */
  maxEventBytes?: number | undefined
  /** The largest body of one document. Default 16 MiB. */
  maxDocumentBytes?: number | undefined
  /** Headers, causation, correlation and user of all writes of sessions, unless a session has its own. */
  sessionDefaults?: AppendDefaults | undefined
  /** How often code that waits for events looks without a hint. Default 1000. */
  pollMs?: number | undefined
  /** How long an append is sent again after its connection broke. Default 30 000. */
  resendMs?: number | undefined
  /** The most appends that may wait at once; more are refused with `Overloaded`. Default 10 000. */
  maxQueuedAppends?: number | undefined
  /** Limits of workflows. */
  workflows?: WorkflowOptions | undefined
  /** How long expired data is kept before runners delete it. */
  retention?: RetentionOptions | undefined
  /** How long `close` waits for running work. Default 5000. */
  closeMs?: number | undefined
  /** The name of the operator for the audit, unless `store.audit.withActor` gives one. Default: the user of the system and the host. */
  actor?: string | undefined
  clock?: Clock | undefined
  ids?: Ids | undefined
  /**
   * Takes fields and a sentence, as pino does. Without one a runner writes failures to stderr, one line each; `false`
   * silences that.
   */
  logger?: Logger | false | undefined
  /** A database that is open already, shared with other stores; it is not closed with this one. */
  database?: Database | undefined
  /** `defineAggregate`, `defineClassAggregate`, `defineProjectedAggregate`. */
  aggregates?: readonly Aggregate[] | undefined
  /** Collections of documents: `defineCollection`. */
  collections?: readonly Collection[] | undefined
  /** `defineProjection`, `defineDocumentProjection`, `defineTableProjection`. */
  projections?: readonly Projection[] | undefined
  /** Consumers with code of your own: `defineProcessor`. */
  processors?: readonly Processor[] | undefined
  /** `defineSubscription`; those with `run` are run by a runner. */
  subscriptions?: readonly Subscription[] | undefined
  /** Code that runs because of events: `defineHandler`. */
  handlers?: readonly Handler<EventsAccepted<NoInfer<M>>>[] | undefined
  /** Handlers that run once for a batch: `defineJoin`. */
  joins?: readonly Handler<EventsAccepted<NoInfer<M>>>[] | undefined
  /** Code that undoes steps when a workflow is compensated: `defineUndo`. */
  undos?: readonly Handler<EventsAccepted<NoInfer<M>>>[] | undefined
  /** Events that are published at certain times: `defineSchedule`. */
  schedules?: readonly Schedule<EventsAccepted<NoInfer<M>>>[] | undefined
  /**
   * Registers definitions that are known only later; called with the store once it is open, with that of each tenant if it
   * has any. `false`: definitions are known to this store, but opening writes nothing of them and needs only the rights of
   * a reader; `migrate` is then false by default. Routes, checkpoints and inline projections stay as they are stored.
   */
  register?: false | ((store: Store<M>) => unknown) | undefined
  /** Many tenants instead of one: `'schema'` for all in this database, a directory for many servers. */
  tenancy?: Tenancy | undefined
  /**
   * Returns the current tenant; called by every call that names no tenant: `() => requestContext.getStore()?.tenant`.
   */
  tenant?: (() => string | undefined) | undefined
  /** The prefix of the schema of a tenant. Default `tenant_`. */
  tenantPrefix?: string | undefined
}

/**
 * An open store.
 *
 * @example
 * ```ts
 * const countAll = (shop: Store) => shop.events.head()
 * await countAll(store as unknown as Store)
 * ```
 */
export interface Store<M extends EventMap = UntypedEvents> extends AsyncDisposable {
  readonly engine: 'postgres' | 'pglite'
  readonly events: Events<M>
  readonly streams: Streams
  /** The documents of a collection, or of a document projection: `store.documents(customers)`. */
  readonly documents: OpenDocuments<M>
  /** The rows of a table projection: `store.rows(sales).where(row => gt(row.cents, 1000)).toArray()`. */
  readonly rows: OpenRows<M>
  /** A new id that sorts by time: `order-<UUIDv7>` for `'order'`. */
  newId(category: Named): string
  readonly schema: Schema
  readonly projections: Projections
  /**
   * Makes definitions known to this store that it was not opened with. The promise resolves when new inline projections
   * are active.
   */
  register(...definitions: readonly StoreDefinition<M>[]): Promise<void>
  /** Aggregates of one kind: load, decide, commit. */
  aggregates<State, Command, E extends EventMap>(aggregate: Aggregate<State, Command, E>): Repository<State, Command, E>
  /** The background snapshots of an aggregate: runs them by hand, and reports their state. */
  snapshots(aggregate: Aggregate): Snapshotter
  /** A unit of work: `await using session = store.session()`. */
  session(options?: SessionOptions): Session<M>
  /**
   * Loads, decides and saves; again after a conflict with another writer: `store.handle(Order, 'order-42', command)`.
   */
  readonly handle: Handle<M>
  /** The same with a decision in the call: `store.decide(Order, 'order-42', order => events)`. */
  readonly decide: DecideOn<M>
  /** Events of the log for your code, with acknowledgements. */
  readonly subscribe: Subscribe<M>
  /** The stored subscriptions: their state and their administration. */
  readonly subscriptions: Subscriptions<M>
  /** Handlers that run because of events, durably. */
  readonly workflows: Workflows<M>
  /**
   * Runs the definitions of the store in this process: projections, processors, subscriptions, handlers, schedules,
   * snapshots and upkeep. Many processes share the work. Resolves when it runs.
   */
  start(options?: RunnerOptions): Promise<Runner>
  /** The runners of all processes. */
  readonly runners: Runners
  /** All consumers of the log: their state, their administration, and running them by hand. */
  readonly consumers: ConsumerAdministration
  /** Events that failed for good, of consumers and of handlers. */
  readonly deadLetters: DeadLetters
  /** The actions of operators: each pause, reset, retry, cancellation, …, with its actor, time and outcome. */
  readonly audit: Audit
  /** States of a stream over time, folded by the aggregates and projections of this process; and blame for each field. */
  readonly states: States
  /**
   * Explains why an event is not processed yet, or why a workflow is not settled: a verdict for each consumer and handler.
   * Undefined if the log has no such event.
   */
  explain(target: ExplainTarget): Promise<Explanation | undefined>
  /** Runs `work` in one transaction; pass its handle on as `{ tx }`. Rolled back if `work` throws. */
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>
  /** Writes the whole store into a folder: a line for each row, a manifest with checksums. */
  export(options: ExportOptions): Promise<ExportManifest>
  /** Imports the folder of an export, on any engine; this store must be empty. */
  import(options: StoreImportOptions): Promise<ExportManifest>
  /** Deletes data that is older than its retention now, or reports what would be deleted. */
  upkeep(options?: UpkeepOptions): Promise<UpkeepReport>
  /** Looks for present and coming problems of the store, and says how to fix each. */
  doctor(options?: DoctorOptions): Promise<Diagnosis>
  /**
   * Checks whether the definitions of this program fit what the store holds, before they are deployed: open executions,
   * stored events and states, handlers without code, the schema. Changes nothing; open the store with `register: false`.
   */
  checkDeployment(options?: DeploymentOptions): Promise<DeploymentCheck>
  /** Copies an embedded store into a new folder while it runs; writers wait for the copy. See `restoreBackup`. */
  backup(options: BackupOptions): Promise<BackupResult>
  /** The store's counters since it was opened. */
  metrics(): Record<Counter, number>
  /**
   * Starts an HTTP server with `/health/live`, `/health/ready` and `/metrics`; with `console: true` also the API and the
   * console. It closes with the store.
   */
  server(options: ServerOptions): Promise<StoreServer>
  /** The same as a function from a request to its response, for the server of your framework. */
  http(options: HttpOptions): Promise<HttpHandler>
  /**
   * For development: runs `work` and returns its reads and writes, with the consumers and handlers that ran because of
   * them.
   */
  trace<T>(work: () => Promise<T>, options?: TraceOptions): Promise<Trace<T>>
  /** Waits for running work, then frees everything. May be called again. */
  close(): Promise<void>
}

/**
 * A multi-tenant store. Its members act on the current tenant; without one they throw `TenantRequired`.
 *
 * @example
 * ```ts
 * const countOf = (shop: TenantedStore, name: string) => shop.tenant(name).events.head()
 * ```
 */
export interface TenantedStore<M extends EventMap = UntypedEvents> extends Store<M> {
  /** Runs the tenants that have work, in this process; `concurrency` is that of all of them together. */
  start(options?: TenantsStartOptions): Promise<RunningTenants>
  readonly tenants: Tenants
  /** The members of a store that belong to one tenant. */
  tenant(name: string): Store<M>
  session(options?: SessionOptions & { tenant?: string | undefined }): Session<M>
}

/**
 * Opens a store: embedded in a folder, in memory, or on a server. Close it with `close()`, or `await using`.
 * @example
 * ```ts
 * await using shop = await openStore({ memory: true, events, aggregates: [Order] })
 * ```
 */
export function openStore<M extends EventMap = UntypedEvents>(
  options: StoreOptions<M> & { tenancy: Tenancy },
): Promise<TenantedStore<M>>
export function openStore<M extends EventMap = UntypedEvents>(options?: StoreOptions<M>): Promise<Store<M>>
export async function openStore<M extends EventMap>(options: StoreOptions<M> = {}): Promise<Store<M>> {
  checkStoreOptions('openStore', options)
  const { register, ...rest } = options
  return register === false ? openUnregistered(rest) : open(options, true)
}

/**
 * Opens a store as `register: false` does, and still calls `register`: what it registers is not stored either. For the
 * command line, whose configuration may have definitions that are known only later.
 */
export function openUnregistered<M extends EventMap>(
  options: StoreOptions<M> & { tenancy: Tenancy },
): Promise<TenantedStore<M>>
export function openUnregistered<M extends EventMap>(options: StoreOptions<M>): Promise<Store<M>>
export function openUnregistered<M extends EventMap>(options: StoreOptions<M>): Promise<Store<M>> {
  return open({ ...options, migrate: options.migrate ?? false }, false)
}

async function open<M extends EventMap>(given: StoreOptions<M>, storesDefinitions: boolean): Promise<Store<M>> {
  refuseUnknownOptions('openStore', given, storeOptionNames)
  const options = { ...given, storesDefinitions }
  if (options.tenancy !== undefined) return openTenanted(options.tenancy, options)
  return (await openAlone(options)).store
}

/**
 * Opens a store without tenants, with the parts that a test store needs to run everything by hand. `prepare` is called when
 * the schema is there, and no definition is stored yet.
 */
export async function openParts<M extends EventMap>(
  given: StoreOptions<M>,
  prepare: (parts: Assembled<M>) => Promise<void>,
): Promise<Assembled<M>> {
  checkStoreOptions('testStore', given)
  refuseUnknownOptions('testStore', given, storeOptionNames)
  return openAlone({ ...given, storesDefinitions: given.register !== false }, prepare)
}

async function openAlone<M extends EventMap>(
  options: AssembleOptions<M>,
  prepare?: (parts: Assembled<M>) => Promise<void>,
): Promise<Assembled<M>> {
  const database = options.database === undefined ? await openDatabase(options) : lendDatabase(options.database)
  try {
    return await openOn(database, options, prepare)
  } catch (error) {
    await database.close(0)
    throw error
  }
}

export const storeOptionNames: readonly string[] = optionNames<StoreOptions>({
  ...{ url: true, pool: true, folder: true, memory: true, database: true, schema: true, migrate: true },
  ...{ channel: true, maxConnections: true, maxUses: true, applicationName: true, connectTimeoutMs: true },
  ...{ ssl: true, password: true, prepare: true, listen: true, answerTimeoutMs: true, transactionTimeoutMs: true },
  ...{ slowStatementMs: true, explainSlow: true, closeMs: true, maxEventBytes: true, maxDocumentBytes: true },
  ...{ validateOnRead: true, pollMs: true, resendMs: true, maxQueuedAppends: true, workflows: true },
  ...{ retention: true, sessionDefaults: true, actor: true, clock: true, ids: true, logger: true, events: true },
  ...{ upcasters: true, aggregates: true, collections: true, projections: true, processors: true },
  ...{ subscriptions: true, handlers: true, joins: true, undos: true, schedules: true, register: true },
  ...{ tenancy: true, tenant: true, tenantPrefix: true },
})

/** The definitions that `store.register` takes. */
export type StoreDefinition<M extends EventMap = UntypedEvents> =
  | Aggregate
  | Collection
  | Processor
  | Projection
  | Subscription
  | WorkflowDefinition<EventsAccepted<M>>

/** The options that do not depend on the types of the events. */
type PlainOptions = Omit<StoreOptions<EventMap>, 'events' | 'register' | 'handlers' | 'joins' | 'undos' | 'schedules'>

const emptyUrl =
  'The option "url" is given, but it is empty: is the environment variable set? To fall back to an embedded store, also give its "folder" or "memory: true".'

async function openDatabase(options: PlainOptions): Promise<Database> {
  const { folder, pool } = options
  const memory = options.memory || undefined
  const url = options.url || undefined
  if ('url' in options && url === undefined && folder === undefined && memory === undefined && pool === undefined)
    throw new InvalidOption({ option: 'url', reason: emptyUrl })
  const places = {
    folder: url === undefined ? folder : undefined,
    memory: url === undefined ? memory : undefined,
    url,
    pool,
  }
  const [place, other] = Object.entries(places).flatMap(([name, given]) => (given === undefined ? [] : [name]))
  if (place !== undefined && other !== undefined)
    throw new InvalidOption({
      option: other,
      reason: `The options "${place}" and "${other}" exclude each other. A store is in one place: give one of them.`,
    })
  if (place === 'url' || place === 'pool')
    return (await import('./database/postgres/with-looks.ts')).openWithLooks(options)
  const { openPglite } = await import('./database/pglite/pglite.ts')
  const where = options.memory === true ? { memory: true as const } : { folder: options.folder ?? './.rillflow' }
  return openPglite(where, { clock: options.clock, transactionTimeoutMs: options.transactionTimeoutMs })
}

async function openOn<M extends EventMap>(
  database: Database,
  options: AssembleOptions<M>,
  prepare?: (parts: Assembled<M>) => Promise<void>,
): Promise<Assembled<M>> {
  const { schema = 'rillflow', register, storesDefinitions } = options
  const parts = assemble(database, schema, openTelemetry(options.logger), options)
  const { store, schema: made } = parts
  const mode = migrateMode(database, options)
  await made.ensure(mode, { isAlone: true })
  await prepare?.(parts)
  // Where the schema may be missing, nothing can be stored.
  if (mode !== 'manual' || !storesDefinitions) await registerDefinitions(store, options)
  if (register !== false) await register?.(store)
  return parts
}

/** Registers the definitions of the options; the new ones among those of workflows are stored. */
async function registerDefinitions<M extends EventMap>(store: Store<M>, options: StoreOptions<M>): Promise<void> {
  const { aggregates = [], collections = [], projections = [], processors = [], subscriptions = [] } = options
  const { handlers = [], joins = [], undos = [], schedules = [] } = options
  const followed = [...collections, ...aggregates, ...projections, ...processors, ...subscriptions]
  await store.register(...followed, ...handlers, ...joins, ...undos, ...schedules)
}

function migrateMode({ engine }: Pick<Database, 'engine'>, { migrate }: PlainOptions): MigrateMode {
  if (migrate === 'manual') return 'manual'
  return (migrate ?? engine === 'pglite') ? 'auto' : 'check'
}

async function openTenanted<M extends EventMap>(
  tenancy: Tenancy,
  options: AssembleOptions<M>,
): Promise<TenantedStore<M>> {
  const telemetry = openTelemetry(options.logger)
  const pool = { maxUses: 10_000, ...options }
  const tenancies = await openTenancy<Store<M>>(tenancy, {
    ...{ prefix: options.tenantPrefix ?? 'tenant_', create: options.migrate === true, pool },
    audit: { ids: options.ids ?? uuidv7Ids(), telemetry, actor: options.actor },
    database: () =>
      options.database === undefined ? openDatabase(pool) : Promise.resolve(lendDatabase(options.database)),
    assemble(tenant, schema, openTenantDatabase) {
      const tenantDatabase = openTenantDatabase(raw =>
        makeUsable(openSchema(raw, { schema, tables, library }), migrateMode(raw, options)),
      )
      const parts = assemble(tenantDatabase.database, schema, openTelemetry(options.logger, telemetry), options)
      const { store, tables, close } = parts
      // A tenant that does not exist fails the calls made for it; only `tenants.ensure` waits for this.
      const register = options.register === false ? undefined : options.register
      const registering = Promise.all([registerDefinitions(store, options), register?.(store)])
      const registered = registering.then(
        () => true,
        (error: unknown) => {
          telemetry.log.error({ schema, error }, 'Registering projections and handlers for a tenant failed.')
          return false
        },
      )
      return { ...parts, tenant, tenantDatabase, registered, close }
    },
  })
  const { tenant, tenants, engine } = tenancies
  const current = currentTenantStore<Store<M>>(tenantMembers, options.tenant, tenant)
  const servers = openServers(tenancies.instances, {
    engine,
    tenants,
    open(name) {
      if (name === undefined) return { store: current as unknown as Store, source: undefined }
      const store = tenant(name)
      const instance = tenancies.instances().find(each => each.tenant === name)!
      return { store: store as unknown as Store, source: instance }
    },
  })
  const close = once(async () => {
    await servers.close()
    await tenancies.close(options.closeMs ?? 5000)
  })
  return Object.assign(current, {
    ...{ engine, tenant, tenants, close, [Symbol.asyncDispose]: close, metrics: () => telemetry.counters() },
    start: tenancies.start,
    server: servers.start,
    http: servers.http,
    session(given: SessionOptions & { tenant?: string | undefined } = {}) {
      const { tenant: named, ...rest } = given
      const name = named ?? options.tenant?.()
      if (name === undefined) throw new TenantRequired({ call: 'session' })
      return tenant(name).session(rest)
    },
  })
}

/** Never makes a tenant's schema: one that is missing has moved away, or was dropped. */
async function makeUsable(schema: Schema, mode: MigrateMode): Promise<void> {
  try {
    await schema.ensure('check')
  } catch (error) {
    if (mode === 'check' || !isRillflowError(error, 'schema_outdated')) throw error
    if (mode === 'auto') await schema.sync()
  }
}

/** The members that act on the current tenant. */
const tenantMembers = [
  ...(['events', 'streams', 'documents', 'rows', 'newId', 'schema', 'register'] as const),
  ...(['projections', 'aggregates', 'snapshots', 'handle', 'decide', 'subscribe', 'subscriptions'] as const),
  ...(['workflows', 'runners', 'consumers', 'deadLetters', 'audit', 'states', 'explain'] as const),
  ...(['transaction', 'export', 'import', 'upkeep', 'doctor', 'checkDeployment', 'backup'] as const),
  ...(['trace'] as const),
] as const
