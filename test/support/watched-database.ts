/** A database that shows what is sent to it. */
import type { Database } from '../../src/database/database.ts'

/** Passes a statement on, and shows it before and holds it back as long as the test says. */
export function watchedDatabase(database: Database): {
  readonly database: Database
  readonly labels: string[]
  hold: { readonly label: string; readonly until: Promise<unknown> } | undefined
} {
  const watched = {
    labels: [] as string[],
    hold: undefined as { readonly label: string; readonly until: Promise<unknown> } | undefined,
    database: {
      ...database,
      async run(statement) {
        watched.labels.push(statement.label)
        if (watched.hold?.label === statement.label) await watched.hold.until
        return database.run<never>(statement)
      },
      async runArrays(statement) {
        watched.labels.push(statement.label)
        return database.runArrays(statement)
      },
    } as Database,
  }
  return watched
}
