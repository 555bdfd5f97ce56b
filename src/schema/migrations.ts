/**
 * Every migration there is, in the order they run. A new one goes to the end; one that was released stays as it is.
 */
import type { Migration } from './migration.ts'
import { events } from './migrations/0001-events.ts'
import { settle } from './migrations/0002-settle.ts'
import { append } from './migrations/0003-append.ts'
import { consumers } from './migrations/0004-consumers.ts'
import { subscriptions } from './migrations/0005-subscriptions.ts'
import { inline } from './migrations/0006-inline.ts'
import { snapshots } from './migrations/0007-snapshots.ts'
import { sessions } from './migrations/0008-sessions.ts'
import { workflows } from './migrations/0009-workflows.ts'

export const migrations: readonly Migration[] = [
  events,
  settle,
  append,
  consumers,
  subscriptions,
  inline,
  snapshots,
  sessions,
  workflows,
]

/** As it is called in plans, errors and the log: `migration 3 (append)`. */
export function migrationName({ id, name }: Pick<Migration, 'id' | 'name'>): string {
  return `migration ${id} (${name})`
}
