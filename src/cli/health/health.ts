/** Commands about health, for probes: quick, and told by the exit code. */
import type { Group } from '../command.ts'

export const health: Group = {
  summary: 'Whether the store is well',
  commands: {
    schema: {
      summary: 'Whether the schema is what this version needs',
      load: async () => (await import('./schema.ts')).schemaCommand,
    },
  },
}
