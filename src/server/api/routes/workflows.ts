/** Workflows: looking at them, publishing, signalling and cancelling; and their executions and attempts. */

import { InvalidOption } from '../../../core/errors.ts'
import type { ExecutionState } from '../../../workflows/insight/executions.ts'
import { executionStates } from '../../../workflows/insight/executions.ts'
import { workflowStates } from '../../../workflows/status.ts'
import { pageFields, type Route, route } from '../route.ts'

const event = {
  type: { kind: 'text', required: true, summary: 'The type of the event' },
  data: { kind: 'json', required: true, summary: 'Its data' },
} as const

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
    cli: 'rillflow status',
    call: ({ store }) => store.workflows.stats(),
  }),
  route('POST /workflows/publish', {
    role: 'operate',
    summary: 'Publishes an event that begins a workflow; the header Idempotency-Key makes it repeatable',
    audit: 'workflows.publish',
    body: {
      ...event,
      stream: { kind: 'text', summary: "Default: the workflow's own stream" },
      correlationId: { kind: 'text', summary: 'The workflow it is part of. Default: a new one' },
      headers: { kind: 'json', summary: 'Its headers, an object' },
    },
    cli: 'rillflow workflows publish {type} {data}',
    async call({ store, body: { type, data, headers, ...rest }, request, identity }) {
      const { correlationId } = await store.workflows.publish(type, data, {
        ...rest,
        headers: headers as Record<string, unknown> | undefined,
        idempotencyKey: request.headers.get('idempotency-key') ?? undefined,
        userId: identity.name,
      })
      return { correlationId }
    },
  }),
  route('POST /workflows/cancel', {
    role: 'operate',
    summary: 'Ends all workflows that match and are not over, and the workflows that they have started',
    status: 202,
    body: {
      state: { kind: 'list', choices: ['running', 'waiting', 'parked', 'failed'], summary: 'Default: all of these' },
      since: { kind: 'time', summary: 'Only those that began at or after this time' },
      until: { kind: 'time', summary: 'Only those that began before this time' },
      parent: { kind: 'text', summary: 'Only children of this workflow' },
      reason: { kind: 'text', summary: 'Why, for people' },
      compensate: { kind: 'flag', summary: 'Run the undos of their steps. Default: false' },
    },
    cli: 'rillflow workflows cancel-all --yes',
    async call({ store, body: { state, since, until, parent, reason, compensate }, operations, identity }) {
      const filter = { state: state as never, startedAfter: since, startedBefore: until, parent }
      if (Object.values(filter).every(condition => condition === undefined))
        throw new InvalidOption({ option: 'state', reason: 'This needs a condition: a state, a time or a parent.' })
      return operations.start(
        { kind: 'cancelAll', target: state?.join(', ') ?? 'workflows', startedBy: identity.name },
        (report, signal) =>
          store.workflows.cancelAll(filter, {
            ...{ reason, compensate, signal },
            onProgress: cancelled => report({ phase: 'cancelled', done: cancelled }),
          }),
      )
    },
  }),
  route('GET /workflows/:id', {
    role: 'read',
    summary: 'The status of one workflow',
    cli: 'rillflow workflows show {id}',
    async call({ store, parameters, redact }) {
      const status = await store.workflows.get(parameters.id).status()
      return { ...status, lastFailure: redact.error(status.lastFailure) }
    },
  }),
  route('GET /workflows/:id/tree', {
    role: 'read',
    summary: 'Its events, the handlers they ran, the events these emitted, and so on',
    query: {
      limit: { kind: 'whole', min: 1, max: 10_000, summary: 'The most events, without their data. Default: 2000' },
    },
    cli: 'rillflow workflows tree {id}',
    call: ({ store, parameters, query }) => store.workflows.get(parameters.id).tree({ limit: query.limit ?? 2_000 }),
  }),
  route('GET /workflows/:id/activity', {
    role: 'read',
    summary: 'What its executions did, the oldest line first',
    query: pageFields,
    cli: 'rillflow workflows watch {id}',
    async call({ store, parameters, query, redact }) {
      const { items, next } = await store.workflows.get(parameters.id).activity(query)
      return { items: items.map(each => ({ ...each, error: redact.error(each.error) })), next }
    },
  }),
  route('GET /workflows/:id/attempts', {
    role: 'read',
    summary: 'Its attempts that have ended, the newest first',
    query: { ...pageFields, executionId: { kind: 'text', summary: 'Only those of this execution' } },
    cli: 'rillflow workflows show {id}',
    async call({ store, parameters, query, redact }) {
      const { items, next } = await store.workflows.attempts({ ...query, correlationId: parameters.id })
      return { items: items.map(each => ({ ...each, error: redact.error(each.error) })), next }
    },
  }),
  route('GET /workflows/:id/steps', {
    role: 'read',
    summary: 'The steps, sleeps and waits that its open executions have recorded',
    cli: 'rillflow workflows show {id}',
    call: async ({ store, parameters }) => ({ items: await store.workflows.get(parameters.id).steps() }),
  }),
  route('GET /workflows/:id/waits', {
    role: 'read',
    summary: 'What its open executions wait for: events and children',
    cli: 'rillflow workflows show {id}',
    call: async ({ store, parameters }) => ({ items: await store.workflows.get(parameters.id).waits() }),
  }),
  route('GET /workflows/:id/joins', {
    role: 'read',
    summary: 'Its open joins, with what has arrived',
    cli: 'rillflow workflows show {id}',
    call: async ({ store, parameters }) => ({ items: await store.workflows.get(parameters.id).joins() }),
  }),
  route('GET /workflows/:id/undos', {
    role: 'read',
    summary: 'The undos that its steps have recorded',
    cli: 'rillflow workflows show {id}',
    call: async ({ store, parameters }) => ({ items: await store.workflows.get(parameters.id).undos() }),
  }),
  route('GET /workflows/:id/mermaid', {
    role: 'read',
    summary: 'Its tree as the text of a Mermaid flowchart',
    cli: 'rillflow workflows tree {id} --mermaid',
    call: async ({ store, parameters }) => ({ text: await store.workflows.get(parameters.id).mermaid() }),
  }),
  route('POST /workflows/:id/signal', {
    role: 'operate',
    summary: 'Publishes an event into it, for handlers that wait for one',
    audit: 'workflows.signal',
    body: event,
    cli: 'rillflow workflows signal {id} {type} {data}',
    async call({ store, parameters, body, request, identity }) {
      await store.workflows.get(parameters.id).signal(body.type, body.data, {
        idempotencyKey: request.headers.get('idempotency-key') ?? undefined,
        userId: identity.name,
      })
      return { correlationId: parameters.id }
    },
  }),
  route('POST /workflows/:id/cancel', {
    role: 'operate',
    summary: 'Ends it, and the workflows that it has started',
    body: {
      reason: { kind: 'text', summary: 'Why, for people' },
      compensate: { kind: 'flag', summary: 'Run the undos of its steps. Default: false' },
    },
    cli: 'rillflow workflows cancel {id} --yes',
    call: ({ store, parameters, body }) => store.workflows.get(parameters.id).cancel(body),
  }),
  route('GET /executions', {
    role: 'read',
    summary: 'Open executions by id',
    query: {
      ...pageFields,
      handler: { kind: 'text', summary: 'Only those of this handler' },
      state: { kind: 'text', choices: executionStates, summary: 'Default: all' },
      correlationId: { kind: 'text', summary: 'Only those of this workflow' },
    },
    cli: 'rillflow workflows executions',
    call: ({ store, query: { state, ...rest } }) =>
      store.workflows.executions.list({ ...rest, state: state as ExecutionState | undefined }),
  }),
  route('POST /executions/:id/resume', {
    role: 'operate',
    summary: 'Lets an execution continue that was parked',
    async call({ store, parameters }) {
      await store.workflows.executions.resume(parameters.id)
      return { done: true }
    },
  }),
  route('GET /attempts', {
    role: 'read',
    summary: 'Attempts that have ended, the newest first',
    query: {
      ...pageFields,
      handler: { kind: 'text', summary: 'Only those of this handler' },
      outcome: { kind: 'text', summary: "'completed', 'failed', or the word it ended with" },
    },
    async call({ store, query, redact }) {
      const { items, next } = await store.workflows.attempts(query)
      return { items: items.map(each => ({ ...each, error: redact.error(each.error) })), next }
    },
  }),
]
