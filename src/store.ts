/**
 * Opening a store: the only file that knows all parts.
 *
 *     await using store = await openStore()                     embedded, in ./.rillflow
 *     await using store = await openStore({ memory: true })     embedded, gone when closed
 *     await using store = await openStore({ url, migrate: true })
 */

import type { Aggregate } from './aggregates/aggregate.ts'
import { openAggregates } from './aggregates/aggregates.ts'
import type { AnyEvent } from './aggregates/decider.ts'
import type { Repository } from './aggregates/repository.ts'
import type { Snapshotter, SnapshotterOptions } from './aggregates/snapshotter.ts'
import { openConsumers } from './consumers/consumers.ts'
import { type Daemon, type DaemonOptions, openDaemons } from './consumers/daemon.ts'
import { administerDaemons, type Daemons } from './consumers/daemons.ts'
import { type DeadLetters, openDeadLetters } from './consumers/dead-letters.ts'
import { openProcessors, type Processor, type ProcessorOptions } from './consumers/processor.ts'
import { type Clock, systemClock } from './core/clock.ts'
import { InvalidOption, isRillflowError, OutcomeUnknown, StoreClosed } from './core/errors.ts'
import { type Ids, uuidv7Ids } from './core/id.ts'
import { once } from './core/lifecycle.ts'
import type { Database, Transaction, TransactionOptions } from './database/database.ts'
import { lendDatabase } from './database/lend.ts'
import { parsers } from './database/parse.ts'
import type { PostgresOptions } from './database/postgres.ts'
import { type AnyTransaction, foreignExecutor, isOwnTransaction } from './database/transaction.ts'
import { type Documents, openDocuments } from './documents/documents.ts'
import type { EventDefinitions, EventMap, UntypedEvents } from './events/definition.ts'
import { type Events, openEvents } from './events/events.ts'
import { defaultGroupLimits, groupCommit } from './events/group-commit.ts'
import { inlineRegistry } from './events/inline-registry.ts'
import { type Log, logNames } from './events/log.ts'
import type { AppendDefaults } from './events/prepare.ts'
import { openStreams, type Streams } from './events/streams.ts'
import { type Upcaster, upcasters } from './events/upcast.ts'
import { openWake } from './events/wake.ts'
import { watchLog } from './events/watch.ts'
import { openProjections, type Projections } from './projections/projections.ts'
import type { Step } from './schema/difference.ts'
import { openSchema, type Schema } from './schema/schema.ts'
import { TableRegistry } from './schema/table.ts'
import type { Handle } from './sessions/handle.ts'
import type { Session, SessionOptions } from './sessions/session.ts'
import { openSessions } from './sessions/sessions.ts'
import { openSubscriptions, type Subscribe, type Subscriptions } from './subscriptions/subscriptions.ts'
import { type Counter, channels, type Logger, openTelemetry } from './telemetry/telemetry.ts'

export interface StoreOptions<M extends EventMap = UntypedEvents> extends PostgresOptions {
  /** The events there are, from `defineEvents`: types them, and checks them where a schema is given. */
  events?: EventDefinitions<M> | undefined
  /** Where the embedded store keeps its data. Default `./.rillflow`. */
  folder?: string | undefined
  /** An embedded store that is gone when it is closed. Default false. */
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
  /** Headers, causation, correlation and user of all that sessions write, unless they say otherwise. */
  sessionDefaults?: AppendDefaults | undefined
  /** How often whoever waits for events looks without a hint. Default 1000. */
  pollMs?: number | undefined
  /** How long an append is sent again after its connection broke. Default 30 000. */
  resendMs?: number | undefined
  /** Appends that may wait at once; more are refused with `Overloaded`. Default 10 000. */
  maxQueuedAppends?: number | undefined
  /** How long `close` waits for running work. Default 5000. */
  closeMs?: number | undefined
  clock?: Clock | undefined
  ids?: Ids | undefined
  /** Takes fields and a sentence, as pino does. Default: silence. */
  logger?: Logger | undefined
  /** A database that is open already, shared with other stores; it is not closed with this one. */
  database?: Database | undefined
}

export interface Store<M extends EventMap = UntypedEvents> extends AsyncDisposable {
  readonly engine: 'postgres' | 'pglite'
  readonly events: Events<M>
  readonly streams: Streams
  /** A collection of documents: `store.documents<Customer>('customers', { indexes })`. */
  readonly documents: Documents
  readonly schema: Schema
  readonly projections: Projections
  /** Aggregates of one kind: loaded, asked, committed. */
  aggregates<State, Command, Event extends AnyEvent>(
    aggregate: Aggregate<State, Command, Event>,
  ): Repository<State, Command, Event>
  /** Registers a consumer that keeps snapshots of these aggregates; it runs in a daemon, or when called. */
  snapshotter(aggregate: Aggregate, options?: SnapshotterOptions): Snapshotter
  /** A unit of work: `await using session = store.session()`. */
  session(options?: SessionOptions): Session<M>
  /** Loads, decides and saves, anew if somebody else was faster: `store.handle(Order, 'order-42', command)`. */
  readonly handle: Handle<M>
  /** Events of the log for code of yours, with acknowledgements. */
  readonly subscribe: Subscribe<M>
  /** The subscriptions that are stored: their state, and what operators do with them. */
  readonly subscriptions: Subscriptions<M>
  /** The daemons of all processes. */
  readonly daemons: Daemons
  /** A daemon that runs the consumers registered here, once it is started. */
  daemon(options?: DaemonOptions): Daemon
  /** What consumers have set aside. */
  readonly deadLetters: DeadLetters
  /** A consumer that this program runs itself: `await store.processor('mailer', { handlers }).run(signal)`. */
  processor(name: string, options: ProcessorOptions<M>): Processor
  /** Runs `work` in one transaction; pass its handle on as `{ tx }`. Rolled back if `work` throws. */
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>
  /** The store's counters since it was opened. */
  metrics(): Record<Counter, number>
  /** Waits for running work, then frees everything. May be called again. */
  close(): Promise<void>
}

export async function openStore<M extends EventMap = UntypedEvents>(options: StoreOptions<M> = {}): Promise<Store<M>> {
  const database = options.database === undefined ? await openDatabase(options) : lendDatabase(options.database)
  try {
    return await openOn(database, options)
  } catch (error) {
    await database.close(0)
    throw error
  }
}

async function openDatabase(options: StoreOptions<EventMap>): Promise<Database> {
  const places = { folder: options.folder, memory: options.memory || undefined, url: options.url, pool: options.pool }
  const [place, other] = Object.entries(places).flatMap(([name, given]) => (given === undefined ? [] : [name]))
  if (place !== undefined && other !== undefined)
    throw new InvalidOption({ option: other, reason: `and ${place} exclude each other: a store is in one place` })
  if (place === 'url' || place === 'pool') return (await import('./database/postgres.ts')).openPostgres(options)
  const { openPglite } = await import('./database/pglite.ts')
  const where = options.memory === true ? { memory: true as const } : { folder: options.folder ?? './.rillflow' }
  return openPglite(where, { clock: options.clock, transactionTimeoutMs: options.transactionTimeoutMs })
}

async function openOn<M extends EventMap>(database: Database, options: StoreOptions<M>): Promise<Store<M>> {
  const { schema: schemaName = 'rillflow', migrate = database.engine === 'pglite', closeMs = 5000 } = options
  const telemetry = openTelemetry(options.logger)
  const onStep = ({ object, reason }: Step): void => {
    telemetry.publish(channels.migrate, () => ({ schema: schemaName, object, reason }))
    telemetry.log.info({ schema: schemaName, object, reason }, 'a step of the schema was made')
  }
  const tables = new TableRegistry()
  const schema = openSchema(database, { schema: schemaName, tables, onStep })
  await schema.ensure(migrate === 'manual' ? 'manual' : migrate ? 'auto' : 'check')

  const clock = options.clock ?? systemClock
  const log: Log = {
    database,
    schema: schemaName,
    names: logNames(schemaName),
    channel: options.channel ?? 'rillflow_events',
    clock,
    ids: options.ids ?? uuidv7Ids({ clock }),
    telemetry,
    definitions: options.events ?? { schemas: new Map() },
    upcasters: upcasters(options.upcasters ?? []),
    inline: inlineRegistry(),
    maxEventBytes: options.maxEventBytes ?? 1024 * 1024,
    validateOnRead: options.validateOnRead ?? false,
  }
  const wake = openWake(log)
  const watch = watchLog(log, wake, options.pollMs ?? 1000)
  const group = groupCommit(log, {
    ...defaultGroupLimits,
    maxQueued: options.maxQueuedAppends ?? defaultGroupLimits.maxQueued,
    resendMs: options.resendMs ?? defaultGroupLimits.resendMs,
  })
  const transactions = rememberingTransactions(database)
  const executorOf = (tx: AnyTransaction) => (isOwnTransaction(tx) ? tx : foreignExecutor(tx, foreignTypes))
  const parts = { log, group, wake, watch, executorOf, rememberIds: transactions.rememberIds }

  const subscriptions = openSubscriptions<M>(parts)
  const consumers = openConsumers({ log, wake, watch })
  const daemons = openDaemons(consumers)
  const aggregates = openAggregates({ ...parts, consumers })
  const processors = openProcessors(consumers)
  const sessions = openSessions({ ...parts, cacheOf: aggregates.cacheOf }, options.sessionDefaults)
  const projections = openProjections({
    ...{ consumers, schema, tables, executorOf },
    syncs: migrate === true,
    runConsumers: daemons.runUntil,
  })

  const close = once(async () => {
    const until = performance.now() + closeMs
    const left = (): number => Math.max(0, until - performance.now())
    await withinLimit(Promise.all([daemons, processors, subscriptions].map(each => each.stopAll())), left())
    watch.close(new StoreClosed({}))
    await withinLimit(sessions.drain(), left())
    await withinLimit(group.drain(), left())
    await withinLimit(wake.close(), left())
    await database.close(left())
  })

  return {
    engine: database.engine,
    events: openEvents<M>(parts),
    streams: openStreams(parts),
    documents: openDocuments({
      ...{ database, schema, tables, clock, ids: log.ids, telemetry, executorOf },
      syncs: migrate === true,
      maxDocumentBytes: options.maxDocumentBytes,
    }),
    schema,
    projections,
    aggregates: aggregates.repository,
    snapshotter: aggregates.snapshotter,
    session: given => sessions.session(given) as unknown as Session<M>,
    handle: sessions.handle as unknown as Handle<M>,
    subscribe: subscriptions.subscribe,
    subscriptions: subscriptions.subscriptions,
    daemons: administerDaemons({ log, wake }),
    daemon: daemons.daemon,
    deadLetters: openDeadLetters({ log, onRequest: () => wake.changed() }),
    processor: processors.processor,
    transaction: transactions.transaction,
    metrics: () => telemetry.counters(),
    close,
    [Symbol.asyncDispose]: close,
  }
}

/** A transaction whose commit got no answer names the events that were appended in it. */
function rememberingTransactions(database: Database): {
  transaction: Store['transaction']
  rememberIds(tx: AnyTransaction, ids: readonly string[]): void
} {
  const appended = new WeakMap<AnyTransaction, string[]>()
  return {
    async transaction(work, options) {
      const eventIds: string[] = []
      try {
        return await database.transaction(tx => {
          appended.set(tx, eventIds)
          return work(tx)
        }, options)
      } catch (error) {
        if (!isRillflowError(error, 'outcome_unknown')) throw error
        throw new OutcomeUnknown({ eventIds, reason: 'the connection was lost during the commit' }, error)
      }
    },
    rememberIds(tx, ids) {
      appended.get(tx)?.push(...ids)
    },
  }
}

const foreignTypes = { getTypeParser: (oid: number) => parsers[oid] ?? ((text: string) => text) }

async function withinLimit(work: Promise<unknown>, limitMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const limit = new Promise<void>(resolve => {
    timer = setTimeout(resolve, limitMs)
  })
  await Promise.race([work, limit])
  clearTimeout(timer)
}
