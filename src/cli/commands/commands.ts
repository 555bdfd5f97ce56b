/**
 * The tree of commands, in the order that help shows: nouns with their verbs, and commands that stand alone. A file is loaded
 * when a line asks for what is in it, so help is quick. Hidden names are those of the Rust edition, where they differ.
 */
import type { Command, Commands, Group, Leaf, Root } from '../command.ts'

export const root: Root = {
  summary: 'Rillflow: documents, events, projections, subscriptions and workflows on PostgreSQL',
  commands: async () => commands,
  aliases: {
    docs: ['documents'],
    'schema-plan': ['schema', 'plan'],
    'schema-sync': ['schema', 'sync'],
    'schema-down': ['schema', 'down'],
    'projections reset-checkpoint': ['projections', 'reset'],
    'projections run-loop': ['projections', 'run'],
    'projections dlq-list': ['dead-letters', 'list'],
    'projections dlq-requeue': ['dead-letters', 'retry'],
    'projections dlq-delete': ['dead-letters', 'delete'],
    'projections cluster-status': ['daemons', 'list'],
    'projections promote': ['daemons', 'promote'],
    'projections demote': ['daemons', 'demote'],
  },
}

const commands: Commands = {
  init: command('Write a configuration to begin with', async () => (await import('./init.ts')).initCommand),
  dev: command(
    'Everything in one, to develop with: store, daemon, worker, health, live tail',
    async () => (await import('./dev/dev.ts')).devCommand,
  ),
  status: command('How the store is, at a glance', async () => (await import('./status.ts')).statusCommand),
  run: command('Run everything of the configuration until Ctrl-C', async () => (await import('./run.ts')).runCommand),
  events: noun('The events of the log', async () => (await import('./events.ts')).events),
  streams: noun('The streams that events belong to', async () => (await import('./streams.ts')).streams),
  documents: noun('The documents of collections', async () => (await import('./documents.ts')).documents),
  projections: noun('Read models that follow the log', async () => (await import('./projections.ts')).projections),
  subscriptions: noun(
    'Subscriptions to the log, and their groups',
    async () => (await import('./subscriptions.ts')).subscriptions,
  ),
  workflows: noun('What handlers do because of events', async () => (await import('./workflows.ts')).workflows),
  'dead-letters': noun(
    'Events that were set aside because they failed',
    async () => (await import('./dead-letters.ts')).deadLetters,
  ),
  snapshots: noun('Snapshots of aggregates', async () => (await import('./snapshots.ts')).snapshots),
  daemons: noun('The daemons that run consumers, in all processes', async () => (await import('./daemons.ts')).daemons),
  schema: noun('What the database holds for the store', async () => (await import('./schema.ts')).schema),
  health: noun('Whether the store is well', async () => (await import('./schema.ts')).health),
  tenants: noun('The tenants of a store that has tenants', async () => (await import('./tenants.ts')).tenants),
  upcasters: noun('How old events are read in their new shape', async () => (await import('./upcasters.ts')).upcasters),
  doctor: command(
    'Look for what is wrong or will be, and what mends it',
    async () => (await import('./upkeep.ts')).doctorCommand,
  ),
  upkeep: command(
    'Delete what is older than it has to be kept',
    async () => (await import('./upkeep.ts')).upkeepCommand,
  ),
  backup: command(
    'Copy an embedded store into a new folder',
    async () => (await import('./transfer.ts')).backupCommand,
  ),
  restore: command(
    'Bring a backup back, whole or up to a position',
    async () => (await import('./transfer.ts')).restoreCommand,
  ),
  export: command(
    'Write the whole store into a folder, for any engine',
    async () => (await import('./transfer.ts')).exportCommand,
  ),
  import: command('Bring in what an export has written', async () => (await import('./transfer.ts')).importCommand),
  bench: command('How fast appends and reads are here', async () => (await import('./bench.ts')).benchCommand),
  completion: command(
    'A script that completes commands in your shell',
    async () => (await import('../completion.ts')).completionCommand,
  ),
}

function command(summary: string, load: () => Promise<Command>): Leaf {
  return { summary, load }
}

function noun(summary: string, load: () => Promise<Commands>): Group {
  return { summary, commands: load }
}
