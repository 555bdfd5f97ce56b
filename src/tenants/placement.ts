/** Where a tenant is. Two things know it: the catalogue of one database, or a directory of many. */
import type { Database } from '../database/database.ts'

export interface Placement {
  readonly tenant: string
  readonly server: string
  readonly schema: string
  readonly state: 'active' | 'moving'
  /** Grows with each step of a move. */
  readonly epoch: number
}

export interface Placements {
  /** Of the servers; alike for all of them. */
  readonly traits: Pick<
    Database,
    'engine' | 'soleUser' | 'neighbours' | 'maxConnections' | 'batch' | 'files' | 'refuseInsideTransaction'
  >
  readonly prefix: string
  /** Asks, every time. */
  find(tenant: string): Promise<Placement | undefined>
  list(): Promise<Placement[]>
  /** Says where a new tenant goes, before its schema is made; the place it has already if there is one. */
  place(tenant: string, server: string | undefined): Promise<Placement>
  /** After its schema is gone. */
  forget(tenant: string): Promise<void>
  /** The servers there are. */
  servers(): Promise<string[]>
  /** The database of a server, opened on first use and shared by all tenants on it. */
  databaseOf(server: string): Promise<Database>
  close(closeMs: number): Promise<void>
}
