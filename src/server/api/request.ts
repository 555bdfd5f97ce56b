/** A request that has passed: its store, its parameters as values, and the identity that sent it. */
import type { Tenants } from '../../tenants/tenants.ts'
import type { Access, Identity } from '../access/access.ts'
import type { Redaction } from '../access/redact.ts'
import type { LiveConnections } from '../live/live.ts'
import type { ServerSource } from '../server.ts'
import type { Operations } from './operations.ts'
import type { StoreReadings } from './readings.ts'
import type { ApiStore } from './source.ts'

export interface ApiRequest<Parameters = Record<string, string>, Query = object, Body = object> {
  readonly store: ApiStore
  readonly source: ServerSource
  readonly tenants: Tenants | undefined
  readonly tenant: string | undefined
  /** Readings of the store that all requests share. */
  readonly readings: StoreReadings
  readonly live: LiveConnections
  readonly operations: Operations
  readonly parameters: Parameters
  readonly query: Query
  readonly body: Body
  readonly identity: Identity
  readonly redact: Redaction
  readonly access: Access
  /** Of the sender, where it is known. */
  readonly address: string | undefined
  readonly request: Request
  /** Aborts when the client is gone or the time of the request is over. */
  readonly signal: AbortSignal
}
