/**
 * The tree of commands, in the order that help shows: nouns with their verbs, and commands without a noun.
 *
 *     one file a noun        events, consumers, workflows, … : all its commands, and at the end the list of its verbs
 *     without a noun         init, status, run, bench, verify; dev/ · transfer: export, import, backup, restore · upkeep: doctor, check, upkeep
 *
 * Guarantee: a file is loaded only when a line asks for a command in it, so `rillflow --help` loads none of them.
 *
 * To add a verb, define its command in the file of the noun and add it to the list at its end.
 */
import type { Command, Commands, Group, Leaf, Root } from '../command.ts'
import { olderLines } from '../older-lines.ts'

const commands: Commands = {
  init: command('Write a first configuration', async () => (await import('./init.ts')).init),
  dev: command(
    'Run everything that the configuration defines, for development, with a live view of events',
    async () => (await import('./dev/dev.ts')).dev,
  ),
  console: command(
    'Serve the console, to look at the store in a browser',
    async () => (await import('./console.ts')).console,
  ),
  status: command('Show the state of the store at a glance', async () => (await import('./status.ts')).status),
  run: command(
    'Run everything that the configuration defines, until Ctrl-C',
    async () => (await import('./run.ts')).run,
  ),
  events: noun('The events of the log', async () => (await import('./events.ts')).events),
  streams: noun('The streams that events belong to', async () => (await import('./streams.ts')).streams),
  documents: noun('The documents of collections', async () => (await import('./documents.ts')).documents),
  consumers: noun(
    'Consumers: projections, processors, subscriptions and all others that follow the log',
    async () => (await import('./consumers.ts')).consumers,
  ),
  projections: noun(
    'Projections, which build read models from the log',
    async () => (await import('./projections.ts')).projections,
  ),
  subscriptions: noun(
    'Subscriptions to the log, and their groups',
    async () => (await import('./subscriptions.ts')).subscriptions,
  ),
  workflows: noun(
    'Workflows, in which handlers respond to events',
    async () => (await import('./workflows.ts')).workflows,
  ),
  handlers: noun(
    'Handlers, the code that runs because of events',
    async () => (await import('./handlers.ts')).handlers,
  ),
  lanes: noun('Lanes: the ordered executions of one key', async () => (await import('./handlers.ts')).lanes),
  schedules: noun(
    'Schedules: events that are published at certain times',
    async () => (await import('./schedules.ts')).schedules,
  ),
  'dead-letters': noun(
    'Dead letters: events that a consumer or handler failed on',
    async () => (await import('./dead-letters.ts')).deadLetters,
  ),
  snapshots: noun('Snapshots of aggregates', async () => (await import('./snapshots.ts')).snapshots),
  runners: noun(
    'Runners, which run consumers and handlers, in all processes',
    async () => (await import('./runners.ts')).runners,
  ),
  audit: noun('The audit: what operators did', async () => (await import('./audit.ts')).audit),
  schema: noun('The database schema of the store', async () => (await import('./schema.ts')).schema),
  health: noun('Health checks for probes', async () => (await import('./schema.ts')).health),
  tenants: noun('The tenants of a store that has tenants', async () => (await import('./tenants.ts')).tenants),
  upcasters: noun(
    'Upcasters, which give old events their new shape',
    async () => (await import('./upcasters.ts')).upcasters,
  ),
  doctor: command('Look for problems and say how to fix them', async () => (await import('./upkeep.ts')).doctor),
  check: command(
    'Check, before a deployment, whether the code fits the store',
    async () => (await import('./upkeep.ts')).check,
  ),
  upkeep: command('Delete expired data', async () => (await import('./upkeep.ts')).upkeep),
  backup: command('Copy an embedded store into a new folder', async () => (await import('./transfer.ts')).backup),
  restore: command('Restore a backup, whole or up to a position', async () => (await import('./transfer.ts')).restore),
  export: command(
    'Write the whole store into a folder, for any engine',
    async () => (await import('./transfer.ts')).exportStore,
  ),
  import: command('Load an export into an empty store', async () => (await import('./transfer.ts')).importStore),
  bench: command('Measure the speed of appends and reads', async () => (await import('./bench.ts')).bench),
  verify: command(
    'Try your server, pooler and network hard, and judge what they did',
    async () => (await import('./verify.ts')).verifyServer,
  ),
  completion: command(
    'Print a script that completes commands in your shell',
    async () => (await import('../completion.ts')).completion,
  ),
}

export const root: Root = {
  summary: 'Rillflow: documents, events, projections, subscriptions and workflows on PostgreSQL',
  commands: async () => commands,
  synonyms: {
    'projections status': ['consumers', 'status'],
    'projections pause': ['consumers', 'pause'],
    'projections resume': ['consumers', 'resume'],
    'projections reset': ['consumers', 'reset'],
    'projections run-once': ['consumers', 'run-once'],
    'projections run-until-idle': ['consumers', 'run-until-idle'],
    'workflows handlers': ['handlers', 'list'],
    'workflows schedules': ['schedules', 'list'],
    'subscriptions pause': ['consumers', 'pause'],
    'subscriptions resume': ['consumers', 'resume'],
    'subscriptions reset': ['consumers', 'reset'],
  },
  older: olderLines,
}

function command(summary: string, load: () => Promise<Command>): Leaf {
  return { summary, load }
}

function noun(summary: string, load: () => Promise<Commands>): Group {
  return { summary, commands: load }
}
