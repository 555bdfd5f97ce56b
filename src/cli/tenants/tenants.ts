/**
 * Commands about tenants as such. Whatever else is done for one tenant is done by the other commands with `--tenant`, and
 * the checks look at all of them with `--all-tenants`.
 */
import type { Group } from '../command.ts'

export const tenants: Group = {
  summary: 'The tenants of a store that has tenants',
  commands: {
    ensure: {
      summary: 'Make a tenant, or bring the schema of one up to date',
      load: async () => (await import('./ensure.ts')).ensureCommand,
    },
    list: {
      summary: 'Who there is, and where',
      load: async () => (await import('./list.ts')).listCommand,
    },
    status: {
      summary: 'Version, drift, size and lag',
      load: async () => (await import('./status.ts')).statusCommand,
    },
    sync: {
      summary: 'Bring the schemas of all up to date',
      load: async () => (await import('./sync.ts')).syncCommand,
    },
    archive: {
      summary: 'Write all that a tenant has into a folder',
      load: async () => (await import('./archive.ts')).archiveCommand,
    },
    import: {
      summary: 'Make a tenant of an archive, or of a part of another schema',
      load: async () => (await import('./import.ts')).importCommand,
    },
    drop: {
      summary: 'Delete a tenant with all it has',
      load: async () => (await import('./drop.ts')).dropCommand,
    },
    move: {
      summary: 'Move a tenant to another server while it is used',
      load: async () => (await import('./move.ts')).moveCommand,
    },
  },
}
