/** Workflows, their handlers and attempts. */
import { workflowStates } from '../../../workflows/status.ts'
import { pageFields, type Route, route } from '../route.ts'

export const workflowRoutes: readonly Route[] = [
  route('GET /workflows', {
    role: 'read',
    summary: 'Workflows, the newest first',
    query: {
      ...pageFields,
      state: { kind: 'list', choices: workflowStates, summary: 'One state or several. Default: all' },
      hasDeadLetters: { kind: 'flag', summary: 'Only those with open dead letters' },
      since: { kind: 'time', summary: 'Only those that began at or after this time' },
      until: { kind: 'time', summary: 'Only those that began before this time' },
      parent: { kind: 'text', summary: 'Only children of this workflow' },
    },
    cli: 'rillflow workflows list',
    async call({ store, query, redact }) {
      const { since, until, state, hasDeadLetters, ...rest } = query
      const { items, next } = await store.workflows.list({
        ...rest,
        state: state as never,
        hasDeadLetters: hasDeadLetters === true ? true : undefined,
        startedAfter: since,
        startedBefore: until,
      })
      return { items: items.map(each => ({ ...each, lastFailure: redact.error(each.lastFailure) })), next }
    },
  }),
  route('GET /workflows/stats', {
    role: 'watch',
    summary: 'How many workflows, executions and dead letters there are',
    cli: 'rillflow workflows stats',
    call: ({ store }) => store.workflows.stats(),
  }),
  route('GET /workflows/:id', {
    role: 'read',
    summary: 'The status of one workflow',
    cli: 'rillflow workflows status {id}',
    call: ({ store, parameters }) => store.workflows.get(parameters.id).status(),
  }),
  route('GET /workflows/:id/tree', {
    role: 'read',
    summary: 'Its events, the handlers they ran, the events these emitted, and so on',
    query: { limit: { kind: 'whole', min: 1, max: 10_000, summary: 'The most events. Default: 2000' } },
    cli: 'rillflow workflows tree {id}',
    call: ({ store, parameters, query }) => store.workflows.get(parameters.id).tree({ limit: query.limit ?? 2_000 }),
  }),
  route('GET /workflows/:id/attempts', {
    role: 'read',
    summary: 'Its attempts that have ended, the newest first',
    query: { ...pageFields, executionId: { kind: 'text', summary: 'Only those of this execution' } },
    cli: 'rillflow workflows attempts --workflow {id}',
    call: ({ store, parameters, query }) => store.workflows.attempts({ ...query, correlationId: parameters.id }),
  }),
  route('GET /handlers', {
    role: 'read',
    summary: 'Every version of each handler, with its open executions',
    query: pageFields,
    cli: 'rillflow workflows handlers',
    call: ({ store, query }) => store.workflows.handlers.list(query),
  }),
  route('GET /workers', {
    role: 'read',
    summary: 'The workers that run handlers, in all processes',
    query: pageFields,
    cli: 'rillflow workflows workers',
    call: ({ store, query }) => store.workflows.workers(query),
  }),
]
