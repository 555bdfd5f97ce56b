/** Consumers: all that follows the log; and projections and subscriptions in particular. */
import { pageFields, type Route, repeatedName, route } from '../route.ts'

const kinds = ['projection', 'processor', 'subscription', 'snapshotter', 'dispatcher'] as const
const group = { kind: 'text', summary: 'The group of a subscription. Default: all groups' } as const
const done = { done: true } as const

export const consumerRoutes: readonly Route[] = [
  route('GET /consumers', {
    role: 'read',
    summary: 'Consumers by name, with their checkpoint, lag and failures',
    query: { ...pageFields, kind: { kind: 'text', choices: kinds, summary: 'Default: all kinds' } },
    cli: 'rillflow consumers list',
    async call({ store, query, redact }) {
      const { items, next } = await store.consumers.list(query)
      return { items: items.map(each => ({ ...each, lastError: redact.error(each.lastError) })), next }
    },
  }),
  route('GET /consumers/:name', {
    role: 'read',
    summary: 'One consumer, with its filter, limits and failure policy where this process has its code',
    query: { group: { kind: 'text', summary: 'The group of a subscription. Default: default' } },
    cli: 'rillflow consumers status {name}',
    async call({ store, parameters: { name }, query, redact }) {
      const status = await store.consumers.describe(name, query)
      return { ...status, lastError: redact.error(status.lastError) }
    },
  }),
  route('GET /consumers/:name/wait', {
    role: 'read',
    summary: 'Waits until it has reached a position; if it does not, the error says what is missing',
    query: {
      position: { kind: 'whole', min: 0, summary: 'Default: the end of the log' },
      timeoutMs: { kind: 'whole', min: 1, max: 4_000, summary: 'Default: 3000' },
      group: { kind: 'text', summary: 'The group of a subscription. Default: default' },
    },
    cli: 'rillflow consumers wait {name}',
    async call({ store, parameters: { name }, query: { position, timeoutMs = 3_000, group }, signal }) {
      const began = performance.now()
      const to = position ?? (await store.events.settled()).settled
      await store.consumers.waitFor(name, to, { timeoutMs, signal, group })
      return { position: to, waitedMs: performance.now() - began }
    },
  }),
  route('POST /consumers/:name/pause', {
    role: 'operate',
    summary: 'The batch that is running completes; none begins after it',
    body: { group },
    cli: 'rillflow consumers pause {name}',
    async call({ store, parameters, body }) {
      await store.consumers.pause(parameters.name, body)
      return done
    },
  }),
  route('POST /consumers/:name/resume', {
    role: 'operate',
    summary: 'Continues at once; a wait after failures is over, too',
    body: { group },
    cli: 'rillflow consumers resume {name}',
    async call({ store, parameters, body }) {
      await store.consumers.resume(parameters.name, body)
      return done
    },
  }),
  route('POST /consumers/:name/reset', {
    role: 'admin',
    summary: 'Moves the checkpoint only: events after it come again, and a read model may count them twice',
    body: {
      position: { kind: 'whole', min: 0, required: true, summary: 'The new checkpoint' },
      confirm: { kind: 'text', required: true, summary: 'The name of the consumer again' },
      group,
    },
    cli: 'rillflow consumers reset {name} {position} --yes',
    async call({ store, parameters: { name }, body }) {
      repeatedName(name, body.confirm)
      await store.consumers.reset(name, body.position, { group: body.group })
      return done
    },
  }),
  route('DELETE /consumers/:name', {
    role: 'admin',
    summary: 'Deletes the checkpoint and the dead letters. A read model, and its tables, stay',
    body: { confirm: { kind: 'text', required: true, summary: 'The name of the consumer again' }, group },
    cli: 'rillflow consumers remove {name} --yes',
    async call({ store, parameters: { name }, body }) {
      repeatedName(name, body.confirm)
      await store.consumers.remove(name, { group: body.group })
      return done
    },
  }),
  route('GET /projections/:name/rows', {
    role: 'read',
    summary: 'The rows of one of its tables, by primary key. Needs the code of the projection here',
    query: { ...pageFields, table: { kind: 'text', summary: 'A table, as its code names it. Default: the first' } },
    cli: 'rillflow projections rows {name}',
    async call({ store, parameters: { name }, query, redact }) {
      const page = await store.projections.rows(name, query)
      return { ...page, items: page.items.map(row => redact.document(row, name) as typeof row) }
    },
  }),
  route('POST /projections/:name/rehearse', {
    role: 'admin',
    summary:
      'Builds the read model again in other tables, and says which rows a rebuild would change. Needs the code here',
    status: 202,
    cli: 'rillflow projections rehearse {name}',
    async call({ store, parameters: { name }, operations, identity, redact }) {
      await store.consumers.status(name)
      return operations.start({ kind: 'rehearse', target: name, startedBy: identity.name }, async (report, signal) => {
        const found = await store.projections.rehearse(name, {
          signal,
          onProgress: ({ phase, position, head, eventsPerSecond, etaMs }) =>
            report({ phase, done: position, total: head, perSecond: eventsPerSecond, etaMs }),
        })
        const shown = (row: object | undefined) => (row === undefined ? undefined : redact.document(row, name))
        const tables = found.tables.map(table => ({
          ...table,
          examples: table.examples.map(({ before, after }) => ({ before: shown(before), after: shown(after) })),
        }))
        return { ...found, tables }
      })
    },
  }),
  route('POST /projections/:name/rebuild', {
    role: 'admin',
    summary: 'Fills the read model anew from the log, while the old one is read. Needs the code of the projection here',
    status: 202,
    body: { restart: { kind: 'flag', summary: 'Discard the work of an interrupted rebuild. Default: false' } },
    cli: 'rillflow projections rebuild {name}',
    async call({ store, parameters: { name }, body, operations, identity }) {
      // A projection that is not known here is refused now, and not by an operation that fails.
      await store.consumers.status(name)
      return operations.start({ kind: 'rebuild', target: name, startedBy: identity.name }, (report, signal) =>
        store.projections.rebuild(name, {
          restart: body.restart,
          signal,
          onProgress: ({ phase, position, head, eventsPerSecond, etaMs }) =>
            report({ phase, done: position, total: head, perSecond: eventsPerSecond, etaMs }),
        }),
      )
    },
  }),
  route('POST /projections/:name/lifecycle', {
    role: 'admin',
    summary: 'Makes a projection inline or async while writers continue',
    body: { lifecycle: { kind: 'text', choices: ['inline', 'async'], required: true, summary: 'The new lifecycle' } },
    cli: 'rillflow projections switch {name} --lifecycle async',
    async call({ store, parameters, body }) {
      await store.projections.switch(parameters.name, { lifecycle: body.lifecycle as 'inline' | 'async' })
      return done
    },
  }),
  route('GET /subscriptions/:name', {
    role: 'read',
    summary: 'The groups of a subscription, with their partitions',
    query: pageFields,
    cli: 'rillflow subscriptions groups {name}',
    async call({ store, parameters, query, redact }) {
      const { items, next } = await store.subscriptions.groups(parameters.name, query)
      return { items: items.map(each => ({ ...each, lastError: redact.error(each.lastError) })), next }
    },
  }),
  route('POST /subscriptions/:name/:group/limit', {
    role: 'admin',
    summary: 'The most events that may be delivered and not acknowledged, from now on',
    body: { maxInFlight: { kind: 'whole', min: 1, required: true, summary: 'The new limit' } },
    cli: 'rillflow subscriptions set-max-in-flight {name} {maxInFlight} --group {group}',
    async call({ store, parameters: { name, group: ofGroup }, body }) {
      await store.subscriptions.setMaxInFlight(name, body.maxInFlight, { group: ofGroup })
      return done
    },
  }),
  route('POST /subscriptions/:name/:group/repartition', {
    role: 'admin',
    summary: 'Changes the number of partitions; all of them run up to one position first',
    status: 202,
    body: { partitions: { kind: 'whole', min: 1, required: true, summary: 'The new number' } },
    cli: 'rillflow subscriptions repartition {name} {partitions} --group {group}',
    call: async ({ store, parameters: { name, group: ofGroup }, body, operations, identity }) =>
      operations.start({ kind: 'repartition', target: `${name}/${ofGroup}`, startedBy: identity.name }, (_, signal) =>
        store.subscriptions.repartition(name, body.partitions, { group: ofGroup, signal }),
      ),
  }),
]
