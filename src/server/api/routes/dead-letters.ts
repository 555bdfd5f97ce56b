/** Dead letters: events that a consumer or handler failed on for good. */
import { pageFields, type Route, route } from '../route.ts'

const states = ['open', 'retrying', 'replayed', 'resolved'] as const

export const deadLetterRoutes: readonly Route[] = [
  route('GET /dead-letters', {
    role: 'read',
    summary: 'Dead letters, by owner and position',
    query: {
      ...pageFields,
      of: { kind: 'text', summary: 'Only those of this consumer or handler' },
      state: { kind: 'text', choices: states, summary: 'Default: all' },
      fingerprint: { kind: 'text', summary: 'Only failures that are alike' },
      type: { kind: 'text', summary: 'Only events of this type' },
      stream: { kind: 'text', summary: 'Only events of this stream' },
      correlationId: { kind: 'text', summary: 'Only those of this workflow' },
      since: { kind: 'time', summary: 'Only those that failed at or after this time' },
    },
    cli: 'rillflow dead-letters list',
    async call({ store, query, redact }) {
      const { items, next } = await store.deadLetters.list(query)
      return { items: items.map(each => ({ ...each, lastError: redact.error(each.lastError) })), next }
    },
  }),
  route('GET /dead-letters/groups', {
    role: 'read',
    summary: 'Failures that are alike together, the largest group first',
    query: {
      ...pageFields,
      of: { kind: 'text', summary: 'Only those of this handler' },
      state: { kind: 'text', choices: states, summary: 'Default: open' },
    },
    cli: 'rillflow dead-letters groups',
    async call({ store, query, redact }) {
      const { items, next } = await store.deadLetters.groups(query)
      return { items: items.map(each => ({ ...each, latestError: redact.error(each.latestError) })), next }
    },
  }),
  route('GET /dead-letters/:owner/:event', {
    role: 'read',
    summary: 'One with its event as stored, its errors and its history',
    cli: 'rillflow dead-letters show {owner} {event}',
    async call({ store, parameters, redact }) {
      const found = await store.deadLetters.show(parameters.owner, parameters.event)
      return {
        ...found,
        event: found.event === undefined ? undefined : redact.event(found.event),
        errors: found.errors.map(redact.error),
        lastError: redact.error(found.lastError),
      }
    },
  }),
  route('POST /dead-letters/:owner/:event/retry', {
    role: 'operate',
    summary: 'Requests a retry; a handler can be given other data than the event has',
    body: { data: { kind: 'json', summary: 'The data to retry with. Default: that of the event' } },
    cli: 'rillflow dead-letters retry {owner} {event}',
    call: ({ store, parameters, body }) =>
      store.deadLetters.retry(parameters.owner, parameters.event, 'data' in body ? { data: body.data } : {}),
  }),
]
