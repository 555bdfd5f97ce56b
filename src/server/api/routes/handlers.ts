/** Handlers, their lanes, and schedules. */
import { pageFields, type Route, repeatedName, route } from '../route.ts'

const done = { done: true } as const

export const handlerRoutes: readonly Route[] = [
  route('GET /handlers', {
    role: 'read',
    summary: 'Every version of each handler, with its policy and its open executions',
    query: pageFields,
    cli: 'rillflow handlers list',
    call: ({ store, query }) => store.workflows.handlers.list(query),
  }),
  route('POST /handlers/:name/pause', {
    role: 'operate',
    summary: 'Nothing of it begins, in all versions and processes; its events queue',
    cli: 'rillflow handlers pause {name}',
    async call({ store, parameters }) {
      await store.workflows.handlers.pause(parameters.name)
      return done
    },
  }),
  route('POST /handlers/:name/resume', {
    role: 'operate',
    summary: 'Continues with the queued executions',
    cli: 'rillflow handlers resume {name}',
    async call({ store, parameters }) {
      await store.workflows.handlers.resume(parameters.name)
      return done
    },
  }),
  route('POST /handlers/:name/retire', {
    role: 'admin',
    summary: 'Gives it, or one version of it, no more events. Open executions still run',
    body: { version: { kind: 'whole', min: 1, summary: 'Default: all versions' } },
    cli: 'rillflow handlers retire {name} --yes',
    async call({ store, parameters, body }) {
      await store.workflows.handlers.retire(parameters.name, body)
      return done
    },
  }),
  route('GET /lanes', {
    role: 'read',
    summary: 'The lanes of ordered handlers that have executions, or are parked',
    query: {
      ...pageFields,
      handler: { kind: 'text', summary: 'Only those of this handler' },
      isParked: { kind: 'flag', summary: 'Default: both' },
    },
    cli: 'rillflow lanes list',
    call: ({ store, query }) => store.workflows.lanes.list(query),
  }),
  route('POST /lanes/unpark', {
    role: 'operate',
    summary: 'Lets a parked lane continue; its dead letter stays as it is. Without a key: all of the handler',
    body: {
      handler: { kind: 'text', required: true, summary: 'The handler' },
      key: { kind: 'text', summary: 'The key of the lane' },
    },
    cli: 'rillflow lanes unpark {handler}',
    call: async ({ store, body }) => ({
      unparked: await store.workflows.lanes.unpark(body.handler, { key: body.key }),
    }),
  }),
  route('GET /schedules', {
    role: 'read',
    summary: 'Schedules by name, with their next time and their last outcome',
    query: pageFields,
    cli: 'rillflow schedules list',
    call: ({ store, query }) => store.workflows.schedules.list(query),
  }),
  route('GET /schedules/:name/next', {
    role: 'read',
    summary: 'The next due times',
    query: { count: { kind: 'whole', min: 1, max: 100, summary: 'Default: 5' } },
    cli: 'rillflow schedules next {name}',
    call: async ({ store, parameters, query }) => ({
      items: await store.workflows.schedules.next(parameters.name, query.count),
    }),
  }),
  route('GET /schedules/:name/history', {
    role: 'read',
    summary: 'Its runs that have ended, the latest first',
    query: pageFields,
    cli: 'rillflow schedules history {name}',
    async call({ store, parameters, query, redact }) {
      const { items, next } = await store.workflows.schedules.history(parameters.name, query)
      return { items: items.map(each => ({ ...each, error: redact.error(each.error) })), next }
    },
  }),
  route('POST /schedules/:name/pause', {
    role: 'operate',
    summary: 'A run that has begun still ends; none begins, except by a trigger',
    cli: 'rillflow schedules pause {name}',
    async call({ store, parameters }) {
      await store.workflows.schedules.pause(parameters.name)
      return done
    },
  }),
  route('POST /schedules/:name/resume', {
    role: 'operate',
    summary: 'Continues with the next due time',
    cli: 'rillflow schedules resume {name}',
    async call({ store, parameters }) {
      await store.workflows.schedules.resume(parameters.name)
      return done
    },
  }),
  route('POST /schedules/:name/trigger', {
    role: 'operate',
    summary: 'Asks for one more run now',
    cli: 'rillflow schedules trigger {name}',
    call: ({ store, parameters }) => store.workflows.schedules.trigger(parameters.name),
  }),
  route('DELETE /schedules/:name', {
    role: 'admin',
    summary: 'Removes it and its history. Where its code still is, it begins anew with the next start',
    body: { confirm: { kind: 'text', required: true, summary: 'The name of the schedule again' } },
    cli: 'rillflow schedules delete {name} --yes',
    async call({ store, parameters: { name }, body }) {
      repeatedName(name, body.confirm)
      await store.workflows.schedules.delete(name)
      return done
    },
  }),
]
