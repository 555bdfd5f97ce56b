/** Consumers: all that follows the log. */
import { pageFields, type Route, route } from '../route.ts'

const kinds = ['projection', 'processor', 'subscription', 'snapshotter', 'dispatcher'] as const

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
    summary: 'One consumer',
    query: { group: { kind: 'text', summary: 'The group of a subscription' } },
    cli: 'rillflow consumers status {name}',
    async call({ store, parameters: { name }, query, redact }) {
      const status = await store.consumers.status(name, query)
      return { ...status, lastError: redact.error(status.lastError) }
    },
  }),
]
