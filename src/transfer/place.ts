import type { Database } from '../database/database.ts'

/** Where the tables of one store are. */
export interface Place {
  readonly database: Database
  readonly schema: string
}
