/**
 * The parts of a store that the API needs. The server stands below `store.ts`, so it names the parts that it calls; a `Store` fits
 * as it is. All of them are public: the API can do nothing that a program cannot.
 */
import type { Audit } from '../../audit/audit.ts'
import type { ConsumerAdministration } from '../../consumers/administration.ts'
import type { DeadLetters } from '../../consumers/dead-letters/dead-letters.ts'
import type { Runners } from '../../consumers/runners/runners.ts'
import type { UntypedEvents } from '../../events/definition.ts'
import type { Events } from '../../events/events.ts'
import type { Streams } from '../../events/streams/streams.ts'
import type { Projections } from '../../projections/projections.ts'
import type { OpenDocuments } from '../../projections/read.ts'
import type { States } from '../../projections/states.ts'
import type { Schema } from '../../schema/schema.ts'
import type { Subscriptions } from '../../subscriptions/subscriptions.ts'
import type { Counter } from '../../telemetry/metrics.ts'
import type { Tenants } from '../../tenants/tenants.ts'
import type { Diagnosis, DoctorOptions } from '../../upkeep/doctor/doctor.ts'
import type { ExplainTarget, Explanation } from '../../upkeep/explain/explain.ts'
import type { UpkeepOptions, UpkeepReport } from '../../upkeep/upkeep.ts'
import type { Workflows } from '../../workflows/workflows.ts'
import type { ServerSource } from '../server.ts'

/** The store, or the store of one tenant. */
export interface ApiStore {
  readonly engine: 'postgres' | 'pglite'
  readonly events: Events
  readonly streams: Streams
  readonly documents: OpenDocuments<UntypedEvents>
  readonly schema: Schema
  readonly projections: Projections
  readonly consumers: ConsumerAdministration
  readonly subscriptions: Subscriptions
  readonly workflows: Workflows
  readonly deadLetters: DeadLetters
  readonly runners: Runners
  readonly audit: Audit
  readonly states: States
  explain(target: ExplainTarget): Promise<Explanation | undefined>
  upkeep(options?: UpkeepOptions): Promise<UpkeepReport>
  doctor(options?: DoctorOptions): Promise<Diagnosis>
  metrics(): Record<Counter, number>
}

/** A store as a server serves it. */
export interface ApiTarget {
  readonly engine: 'postgres' | 'pglite'
  /** Undefined if the store has no tenants. */
  readonly tenants: Tenants | undefined
  /** The store of a tenant, with its log. Without a name: the store that has no tenants, or one that has, without a log. */
  open(tenant: string | undefined): { readonly store: ApiStore; readonly source: ServerSource | undefined }
}
