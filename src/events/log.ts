/** One log, in one schema of one database: every part of this folder works on it. */

import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Clock } from '../core/clock.ts'
import type { Ids } from '../core/id.ts'
import type { Database } from '../database/database.ts'
import { type Fragment, fragment, type Identifier, identifier } from '../database/sql.ts'
import type { Telemetry } from '../telemetry/telemetry.ts'
import type { InlineRegistry } from './inline/registry.ts'
import type { Upcasters } from './read/upcast.ts'

export interface Log {
  readonly database: Database
  readonly schema: string
  readonly names: LogNames
  readonly channel: string
  readonly clock: Clock
  readonly ids: Ids
  readonly telemetry: Telemetry
  /** The types of the store's events, with the schema of those that are checked; empty: any type. */
  readonly schemas: ReadonlyMap<string, StandardSchemaV1 | undefined>
  readonly upcasters: Upcasters
  /** The inline projections whose code this store has. */
  readonly inline: InlineRegistry
  /** The largest data or headers of one event, in bytes. */
  readonly maxEventBytes: number
  /** Whether events are checked against their schema when read, too. */
  readonly validateOnRead: boolean
}

/** The tables and functions of the log, quoted with their schema. */
export type LogNames = Readonly<Record<(typeof objects)[number], Identifier>>

const objects = [
  'clock',
  'later',
  'to_ms',
  'stamp',
  'state_entry',
  'timeline',
  'events',
  'streams',
  'idempotency_keys',
  'stream_aliases',
  'imports',
  'events_position',
  'announce',
  'draw',
  'settle',
  'append_one',
  'append_batch',
  'appended_at',
  'inline_projections',
  'inline_changes',
  'append_check',
  'append_check_one',
  'append_store',
] as const

export function logNames(schema: string): LogNames {
  return Object.fromEntries(objects.map(object => [object, identifier(schema, object)])) as LogNames
}

/**
 * The from clause of a lock on a number: one row. An advisory lock belongs to one server, and with a table of the log in its
 * statement it is taken on the server that has the log, whichever the client is connected to.
 */
export function whereLogIs({ names }: Pick<Log, 'names'>): Fragment {
  return fragment`${names.inline_changes} as one`
}
