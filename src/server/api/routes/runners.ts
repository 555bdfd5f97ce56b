/** The runners of all processes, and operations, audit and health. */
import type { AuditOutcome } from '../../../audit/audit.ts'
import { pageFields, type Route, repeatedName, route } from '../route.ts'

const done = { done: true } as const

export const runnerRoutes: readonly Route[] = [
  route('GET /runners', {
    role: 'read',
    summary: 'The runners of all processes, with the consumers they hold',
    query: pageFields,
    cli: 'rillflow runners list',
    call: ({ store, query }) => store.runners.list(query),
  }),
  route('GET /workers', {
    role: 'read',
    summary: 'The workers that run handlers, in all processes',
    query: pageFields,
    cli: 'rillflow runners list',
    call: ({ store, query }) => store.workflows.workers(query),
  }),
  route('POST /runners/:name/promote', {
    role: 'admin',
    summary: 'Makes a runner active; the active one with a name becomes a standby',
    cli: 'rillflow runners promote {name}',
    async call({ store, parameters }) {
      await store.runners.promote(parameters.name)
      return done
    },
  }),
  route('POST /runners/:name/demote', {
    role: 'admin',
    summary: 'Makes a runner a standby; the one that has waited longest becomes active',
    cli: 'rillflow runners demote {name}',
    async call({ store, parameters }) {
      await store.runners.demote(parameters.name)
      return done
    },
  }),
  route('POST /runners/:name/pause', {
    role: 'admin',
    summary: 'Drains a runner, by its name or its id: running work completes, and it runs nothing until it is resumed',
    cli: 'rillflow runners pause {name}',
    async call({ store, parameters }) {
      await store.runners.pause(parameters.name)
      return done
    },
  }),
  route('POST /runners/:name/resume', {
    role: 'admin',
    summary: 'Lets a runner that was paused run again',
    cli: 'rillflow runners resume {name}',
    async call({ store, parameters }) {
      await store.runners.resume(parameters.name)
      return done
    },
  }),
  route('GET /operations', {
    role: 'read',
    summary: 'Long work that operators asked this process for, the newest first',
    call: async ({ operations }) => ({ items: operations.list() }),
  }),
  route('DELETE /operations/:id', {
    role: 'operate',
    summary: 'Cancels an operation',
    audit: 'operations.cancel',
    async call({ operations, parameters }) {
      operations.cancel(parameters.id)
      return done
    },
  }),
  route('GET /audit', {
    role: 'read',
    summary: 'What operators did, the newest first',
    query: {
      ...pageFields,
      actor: { kind: 'text', summary: 'Only actions of this operator' },
      action: { kind: 'text', summary: 'An action (consumers.pause), or all of a noun (consumers)' },
      target: { kind: 'text', summary: 'Only actions on this thing' },
      outcome: { kind: 'text', choices: ['running', 'done', 'failed'], summary: 'Default: all' },
      since: { kind: 'time', summary: 'Only actions that began at or after this time' },
    },
    cli: 'rillflow audit list',
    call: ({ store, query: { outcome, ...rest } }) =>
      store.audit.list({ ...rest, outcome: outcome as AuditOutcome | undefined }),
  }),
  route('GET /health/doctor', {
    role: 'read',
    summary: 'Present and coming problems, and how to fix each. Shared for 10 s',
    cli: 'rillflow doctor',
    call: ({ store, readings }) => readings.expensive('doctor', () => store.doctor()),
  }),
  route('GET /schema', {
    role: 'read',
    summary: 'Whether the schema is up to date and as it should be. Shared for 10 s',
    cli: 'rillflow schema check',
    call: ({ store, readings }) =>
      readings.expensive('schema', async () => {
        const state = await store.schema.state()
        const { isHealthy, problems } = await store.schema.check()
        return { ...state, schema: store.schema.name, isHealthy, problems }
      }),
  }),
  route('GET /schema/plan', {
    role: 'read',
    summary: 'The steps that a sync would run now, as SQL',
    cli: 'rillflow schema plan',
    call: ({ store, readings }) => readings.expensive('schema.plan', () => store.schema.plan()),
  }),
  route('POST /schema/sync', {
    role: 'admin',
    summary: 'Brings the schema up to date',
    status: 202,
    body: { confirm: { kind: 'text', required: true, summary: 'The name of the schema' } },
    cli: 'rillflow schema sync',
    async call({ store, body, operations, identity }) {
      repeatedName(store.schema.name, body.confirm)
      return operations.start({ kind: 'sync', target: store.schema.name, startedBy: identity.name }, (report, signal) =>
        store.schema.sync({
          signal,
          onProgress: ({ step, done: count, total }) => report({ phase: step.object, done: count, total }),
        }),
      )
    },
  }),
  route('POST /upkeep', {
    role: 'admin',
    summary: 'Deletes data that is older than its retention, or reports what would be deleted',
    status: 202,
    body: { dryRun: { kind: 'flag', summary: 'Change nothing. Default: false' } },
    cli: 'rillflow upkeep --dry-run',
    call: async ({ store, body, operations, identity }) =>
      operations.start({ kind: 'upkeep', target: store.schema.name, startedBy: identity.name }, (report, signal) =>
        store.upkeep({
          dryRun: body.dryRun,
          signal,
          onProgress: ({ kind, rows }) => report({ phase: kind, done: rows }),
        }),
      ),
  }),
]
