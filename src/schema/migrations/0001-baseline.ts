/** All tables as they were first released, each written in the folder that owns it. */
import type { Migration } from '../migration.ts'
import type { Part } from '../part.ts'

export function baseline(parts: readonly Part[]): Migration {
  return { id: 1, name: 'baseline', breaking: true, statements: parts.flatMap(part => part.tables) }
}
