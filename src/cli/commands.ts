/** The tree of commands, in the order that help shows. Hidden names are those of the Rust edition, where they differ. */
import type { Group } from './command.ts'
import { daemons } from './daemons/daemons.ts'
import { deadLetters } from './dead-letters/dead-letters.ts'
import { documents } from './documents/documents.ts'
import { events } from './events/events.ts'
import { health } from './health/health.ts'
import { projections } from './projections/projections.ts'
import { schema } from './schema/schema.ts'
import { snapshots } from './snapshots/snapshots.ts'
import { streams } from './streams/streams.ts'
import { subscriptions } from './subscriptions/subscriptions.ts'
import { tenants } from './tenants/tenants.ts'
import { upcasters } from './upcasters/upcasters.ts'
import { workflows } from './workflows/workflows.ts'

export const root: Group = {
  summary: 'Rillflow: documents, events, projections, subscriptions and workflows on PostgreSQL',
  commands: {
    init: {
      summary: 'Write a configuration to begin with',
      load: async () => (await import('./init.ts')).initCommand,
    },
    dev: {
      summary: 'Everything in one, to develop with: store, daemon, worker, health, live tail',
      load: async () => (await import('./dev/dev.ts')).devCommand,
    },
    status: {
      summary: 'How the store is, at a glance',
      load: async () => (await import('./status.ts')).statusCommand,
    },
    run: {
      summary: 'Run everything of the configuration until Ctrl-C',
      load: async () => (await import('./run/run.ts')).runCommand,
    },
    events,
    streams,
    documents,
    projections,
    subscriptions,
    workflows,
    'dead-letters': deadLetters,
    snapshots,
    daemons,
    schema,
    health,
    tenants,
    upcasters,
    doctor: {
      summary: 'Look for what is wrong or will be, and what mends it',
      load: async () => (await import('./doctor.ts')).doctorCommand,
    },
    upkeep: {
      summary: 'Delete what is older than it has to be kept',
      load: async () => (await import('./upkeep.ts')).upkeepCommand,
    },
    backup: {
      summary: 'Copy an embedded store into a new folder',
      load: async () => (await import('./backup.ts')).backupCommand,
    },
    restore: {
      summary: 'Bring a backup back, whole or up to a position',
      load: async () => (await import('./restore.ts')).restoreCommand,
    },
    export: {
      summary: 'Write the whole store into a folder, for any engine',
      load: async () => (await import('./export.ts')).exportCommand,
    },
    import: {
      summary: 'Bring in what an export has written',
      load: async () => (await import('./import.ts')).importCommand,
    },
    bench: {
      summary: 'How fast appends and reads are here',
      load: async () => (await import('./bench.ts')).benchCommand,
    },
    completion: {
      summary: 'A script that completes commands in your shell',
      load: async () => (await import('./completion.ts')).completionCommand,
    },
  },
  aliases: {
    docs: ['documents'],
    'schema-plan': ['schema', 'plan'],
    'schema-sync': ['schema', 'sync'],
    'schema-down': ['schema', 'down'],
  },
}
