/** Sessions: what a save under an idempotency key came to, so that a repeat can be told the versions of its documents. */
import type { Migration } from '../migration.ts'

export const sessions: Migration = {
  id: 8,
  name: 'sessions',
  breaking: false,
  statements: ({ name }) => [
    // [collection, id, version] of each document.
    `alter table ${name('idempotency_keys')} add column documents jsonb`,
  ],
}
