import { openAggregates } from './aggregates/aggregates.ts'
import { openAudit } from './audit/audit.ts'
import { audited, recordedAfter, type Verbs } from './audit/audited.ts'
import { openAdministration } from './consumers/administration.ts'
import { openConsumers } from './consumers/consumers.ts'
import { openDeadLetters } from './consumers/dead-letters/dead-letters.ts'
import { type Runnable, runnableConsumers } from './consumers/runners/runnable.ts'
import { openRunners } from './consumers/runners/runners.ts'
import { once, settledWithin } from './core/abort.ts'
import { systemClock } from './core/clock.ts'
import { nameOf } from './core/definition.ts'
import { StoreClosed } from './core/errors.ts'
import { elapsedMs } from './core/host.ts'
import { uuidv7Ids } from './core/id.ts'
import { newId } from './core/name.ts'
import { optionNames, refuseUnknownOptions, refusingUnknownOptions } from './core/options.ts'
import { openServices } from './core/service.ts'
import type { Database, TransactionOptions } from './database/database.ts'
import { ownParser } from './database/parse.ts'
import {
  type AnyTransaction,
  foreignExecutor,
  isOwnTransaction,
  rememberingTransactions,
} from './database/transaction.ts'
import type { Collection, CollectionOptions } from './documents/collection.ts'
import { openCollections } from './documents/documents.ts'
import { defaultGroupLimits, groupCommit } from './events/append/group-commit.ts'
import type { EventDefinitions, EventMap } from './events/definition.ts'
import { openEvents } from './events/events.ts'
import { inlineRegistry } from './events/inline/registry.ts'
import { type Log, logNames } from './events/log.ts'
import { openWake } from './events/order/wake.ts'
import { watchLog } from './events/order/watch.ts'
import { upcasters } from './events/read/upcast.ts'
import { openStreams } from './events/streams/streams.ts'
import { library } from './parts.ts'
import type { DocumentProjection } from './projections/document-projection.ts'
import { openProjections } from './projections/projections.ts'
import type { OpenDocuments, OpenRows } from './projections/read.ts'
import { openStates } from './projections/states.ts'
import type { Step } from './schema/difference.ts'
import { openSchema } from './schema/schema.ts'
import { TableRegistry } from './schema/table.ts'
import { openServers } from './server/server.ts'
import type { DecideOn, Handle } from './sessions/handle.ts'
import { type Session, sessionOptionNames } from './sessions/session.ts'
import { openSessions } from './sessions/sessions.ts'
import type { Store, StoreOptions } from './store.ts'
import { openSubscriptions } from './subscriptions/subscriptions.ts'
import { watchStatements } from './telemetry/slow-statements.ts'
import { channels, type Telemetry } from './telemetry/telemetry.ts'
import type { TenantInstance } from './tenants/tenancy.ts'
import { type BackupOptions, backUp } from './transfer/backup/backup.ts'
import { exportOptionNames, exportStore } from './transfer/export/export.ts'
import { importOptionNames, importStore } from './transfer/export/import.ts'
import { checkDeployment, type DeploymentOptions } from './upkeep/deployment/deployment.ts'
import { type DoctorOptions, examine } from './upkeep/doctor/doctor.ts'
import { explain } from './upkeep/explain/explain.ts'
import { everyMs, openUpkeep, type UpkeepOptions } from './upkeep/upkeep.ts'
import { isWorkflowKind, openWorkflows, type WorkflowRegistry } from './workflows/workflows.ts'

export interface Assembled<M extends EventMap>
  extends Omit<TenantInstance<Store<M>>, 'tenant' | 'tenantDatabase' | 'registered'> {
  /** Does everything that handlers and schedules can do now, in this process, without a runner. */
  readonly runHandlers: WorkflowRegistry<M>['runUntilIdle']
}

export interface AssembleOptions<M extends EventMap> extends StoreOptions<M> {
  /** False: registering a definition makes it known here and writes nothing. */
  readonly storesDefinitions: boolean
}

export function assemble<M extends EventMap>(
  opened: Database,
  schemaName: string,
  telemetry: Telemetry,
  options: AssembleOptions<M>,
): Assembled<M> {
  const { migrate = opened.engine === 'pglite', closeMs = 5000, storesDefinitions } = options
  const database = watchStatements(opened, { telemetry, schema: schemaName }, options)
  const onStep = ({ object, reason }: Step): void => {
    telemetry.publish(channels.migrate, () => ({ schema: schemaName, object, reason }))
    telemetry.log.info({ schema: schemaName, object, reason }, 'A sync has made a step.')
  }
  const tables = new TableRegistry()
  const schema = openSchema(database, { schema: schemaName, tables, library, onStep })
  const clock = options.clock ?? systemClock
  const log: Log = {
    database,
    schema: schemaName,
    names: logNames(schemaName),
    channel: options.channel ?? 'rillflow_events',
    clock,
    ids: options.ids ?? uuidv7Ids({ clock }),
    telemetry,
    schemas: schemasOf(options.events as EventDefinitions | undefined),
    upcasters: upcasters(options.upcasters ?? []),
    inline: inlineRegistry(),
    maxEventBytes: options.maxEventBytes ?? 1024 * 1024,
    validateOnRead: options.validateOnRead ?? false,
  }
  const wake = openWake(log)
  const pollMs = options.pollMs ?? 1000
  const watch = watchLog(log, wake, pollMs)
  const group = groupCommit(log, {
    ...defaultGroupLimits,
    maxQueued: options.maxQueuedAppends ?? defaultGroupLimits.maxQueued,
    resendMs: options.resendMs ?? defaultGroupLimits.resendMs,
  })
  const transactions = rememberingTransactions(database)
  const executorOf = (tx: AnyTransaction) => (isOwnTransaction(tx) ? tx : foreignExecutor(tx, foreignTypes))
  const parts = { log, group, wake, watch, executorOf, rememberIds: transactions.rememberIds }

  const audit = openAudit({ ...log, clock: log.names.clock, actor: options.actor })
  /** The calls of operators: each is recorded in the audit. */
  const recorded = <Api extends object>(noun: string, api: Api, verbs: Verbs<Api>): Api =>
    audited({ audit, executorOf }, noun, api, verbs)

  const services = openServices(clock)
  const consumers = openConsumers({ log, wake, watch })
  const subscriptions = openSubscriptions<M>({ ...parts, consumers, services })
  const upkeep = openUpkeep(log, options.retention)
  const aggregates = openAggregates({ ...parts, consumers })
  const workflows = openWorkflows<M>({ ...parts, consumers, audit, pollMs, storesDefinitions }, options.workflows)
  const documentParts = {
    ...{ database, schema, tables, clock, ids: log.ids, telemetry, executorOf },
    syncs: migrate === true,
    maxDocumentBytes: options.maxDocumentBytes,
    isProjection: (name: string) => projections.has(name),
  }
  const collections = openCollections(documentParts)
  const projections = openProjections({
    ...{ consumers, schema, tables, documents: documentParts },
    syncs: migrate === true,
    activates: storesDefinitions,
    isCollection: collections.has,
  })
  const states = openStates(log)
  const sessionParts = {
    ...parts,
    cacheOf: aggregates.cacheOf,
    turns: aggregates.turns,
    collectionOf: collections.find,
  }
  const sessions = openSessions(sessionParts, options.sessionDefaults)

  const upkeepInBackground: Runnable = {
    kinds: ['upkeep'],
    names: () => [],
    async start() {
      const end = upkeep.start()
      return { stop: async () => end() }
    },
  }
  const followers = runnableConsumers(consumers).map(each =>
    each.kinds.includes('projections') ? projections.switching(each) : each,
  )
  const runnables = [...followers, subscriptions.runnable, workflows.runnable, upkeepInBackground]
  const runners = openRunners({ log, wake, services, runnables })
  const servers = openServers(() => [{ log, schema, consumers }], {
    engine: database.engine,
    tenants: undefined,
    open: () => ({ store: store as unknown as Store, source: { log, schema, consumers } }),
  })
  const close = once(async () => {
    const until = elapsedMs() + closeMs
    const left = (): number => Math.max(0, until - elapsedMs())
    await servers.close()
    // Running work is cut off a little before the end: a runner releases its leases after that.
    await settledWithin(services.close({ timeoutMs: closeMs - Math.min(5_000, closeMs / 2) }), left())
    workflows.close()
    await settledWithin(upkeep.stop(), left())
    watch.close(new StoreClosed({}))
    await settledWithin(group.drain(), left())
    await settledWithin(wake.close(), left())
    await database.close(left())
  })

  const store: Store<M> = {
    engine: database.engine,
    events: openEvents<M>(parts),
    streams: recorded('streams', openStreams(parts), operatorVerbs.streams),
    documents: Object.assign(
      (given: string | Collection | DocumentProjection, more?: CollectionOptions) =>
        typeof given === 'object' && given.kind === 'projection'
          ? projections.documents(given)
          : collections.documents(given, more),
      { list: collections.list },
    ) as unknown as OpenDocuments<M>,
    rows: projections.rows as unknown as OpenRows<M>,
    newId: category => newId(nameOf(category), log.ids),
    schema: {
      ...schema,
      sync: given =>
        recordedAfter(
          audit,
          database,
          { action: 'schema.sync' },
          {
            work: () => schema.sync(given),
            isWorth: ({ steps }) => steps.length > 0,
          },
        ),
      async drop() {
        // The audit goes with the schema.
        log.telemetry.log.warn({ schema: schemaName }, 'An operator drops the schema.')
        return schema.drop()
      },
    },
    projections: recorded('projections', projections.projections, operatorVerbs.projections),
    async register(...definitions) {
      const activated: Promise<void>[] = []
      for (const each of definitions) {
        if (each.kind === 'projection' || each.kind === 'aggregate') states.add(each)
        if (each.kind === 'projection') activated.push(projections.projections.register(each))
        else if (each.kind === 'collection') collections.register(each)
        else if (each.kind === 'processor') consumers.register(each.consumer)
        else if (each.kind === 'subscription') subscriptions.register(each)
        else if (each.kind === 'aggregate') aggregates.register(each)
        else workflows.workflows.register(each)
      }
      if (storesDefinitions && definitions.some(({ kind }) => isWorkflowKind(kind)))
        activated.push(workflows.workflows.sync())
      await Promise.all(activated)
      if (!storesDefinitions) return
      const stored = await Promise.allSettled([consumers.store(), subscriptions.store()])
      for (const each of stored) if (each.status === 'rejected') throw each.reason
    },
    aggregates: aggregates.repository,
    snapshots: aggregates.snapshots,
    session(given = {}) {
      refuseUnknownOptions('store.session', given, sessionOptionNames)
      return sessions.session(given) as unknown as Session<M>
    },
    handle: sessions.handle as unknown as Handle<M>,
    decide: sessions.decide as unknown as DecideOn<M>,
    subscribe: subscriptions.subscribe,
    subscriptions: recorded('subscriptions', subscriptions.subscriptions, operatorVerbs.subscriptions),
    workflows: {
      ...workflows.workflows,
      handlers: recorded('handlers', workflows.workflows.handlers, operatorVerbs.handlers),
      executions: recorded('executions', workflows.workflows.executions, operatorVerbs.executions),
      lanes: recorded('lanes', workflows.workflows.lanes, operatorVerbs.lanes),
      schedules: recorded('schedules', workflows.workflows.schedules, operatorVerbs.schedules),
    },
    start: runners.start,
    runners: recorded('runners', runners.runners, operatorVerbs.runners),
    consumers: recorded('consumers', openAdministration({ consumers, services, runnables }), operatorVerbs.consumers),
    deadLetters: recorded(
      'deadLetters',
      openDeadLetters({ log, handlers: workflows.deadLetterKind, onRequest: () => wake.changed() }),
      operatorVerbs.deadLetters,
    ),
    audit,
    states: states.states,
    explain: target => explain({ ...(store as unknown as Store), registered: consumers.list }, target),
    transaction: transactions.transaction,
    export: given => exportStore({ database, schema: schemaName }, given),
    // Not before: the tables of the store must be empty.
    import: given =>
      recordedAfter(
        audit,
        database,
        { action: 'store.import', parameters: { input: given.input } },
        {
          work: () => importStore({ database, schema: schemaName }, given),
          isWorth: () => true,
        },
      ),
    upkeep: recorded('store', { upkeep: upkeep.run }, { upkeep: [] }).upkeep,
    doctor: given => examine({ log, schema, consumers }, given),
    checkDeployment: given =>
      checkDeployment(
        {
          ...{ log, schema, states: states.states, folded: states.definitions },
          ...{ consumers: store.consumers, documents: projections.documents },
          workflows: { ...store.workflows, rehearse: workflows.rehearse, versionsOf: workflows.versionsOf },
        },
        given,
      ),
    backup: given => backUp(log, given),
    metrics: () => telemetry.counters(),
    server: servers.start,
    http: servers.http,
    async trace(work, given) {
      const { recordTrace } = await import('./telemetry/breadcrumbs.ts')
      return recordTrace(schemaName, work, given)
    },
    close,
    [Symbol.asyncDispose]: close,
  }
  const run = { start: runners.start, startUpkeep: () => upkeep.start(everyMs) }
  return {
    store: refusingUnknownOptions('store', store, optionsOfCalls),
    schema,
    tables,
    log,
    wake,
    audit,
    consumers,
    runHandlers: workflows.runUntilIdle,
    ...run,
    close,
  }
}

/** The calls that operators make, with the names of their arguments. */
const operatorVerbs = {
  streams: { archive: ['stream'], restore: ['stream'], tombstone: ['stream'] },
  projections: { rebuild: ['projection'], rehearse: ['projection'], switch: ['projection'] },
  subscriptions: {
    create: ['subscription'],
    setMaxInFlight: ['subscription', 'maxInFlight'],
    repartition: ['subscription', 'partitions'],
  },
  handlers: { pause: ['handler'], resume: ['handler'], retire: ['handler'] },
  executions: { resume: ['execution'], reject: ['execution'], run: ['execution'] },
  lanes: { unpark: ['handler'] },
  schedules: { pause: ['schedule'], resume: ['schedule'], trigger: ['schedule'], delete: ['schedule'] },
  runners: { promote: ['runner'], demote: ['runner'], pause: ['runner'], resume: ['runner'] },
  consumers: { pause: ['consumer'], resume: ['consumer'], reset: ['consumer', 'position'], remove: ['consumer'] },
  deadLetters: {
    retry: ['of', 'eventId'],
    retryAll: [],
    resolve: ['of', 'eventId'],
    resolveAll: [],
    delete: ['of', 'eventId'],
  },
} as const

const optionsOfCalls = {
  transaction: [
    1,
    optionNames<TransactionOptions>({
      timeoutMs: true,
      idleMs: true,
      lockTimeoutMs: true,
      isolation: true,
      changesTables: true,
      signal: true,
    }),
  ],
  doctor: [0, optionNames<DoctorOptions>({ oldTransactionMs: true, lagMs: true, signal: true })],
  upkeep: [0, optionNames<UpkeepOptions>({ dryRun: true, signal: true, onProgress: true })],
  export: [0, exportOptionNames],
  import: [0, importOptionNames],
  trace: [1, ['maxCrumbs']],
  checkDeployment: [0, optionNames<DeploymentOptions>({ signal: true, onProgress: true })],
  backup: [0, optionNames<BackupOptions>({ output: true, onProgress: true, signal: true })],
} as const

const foreignTypes = { getTypeParser: (oid: number) => ownParser(oid) }

function schemasOf(events: EventDefinitions | undefined): Log['schemas'] {
  return new Map(Object.entries(events?.schemas ?? {}))
}
