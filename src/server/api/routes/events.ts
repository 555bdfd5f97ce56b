/** The events of the log. */

import { maxPosition } from '../../../core/options.ts'
import { RequestRefused } from '../answer.ts'
import { pageFields, type Route, route } from '../route.ts'
import { shownEvent } from '../shown.ts'

export const eventRoutes: readonly Route[] = [
  route('GET /events', {
    role: 'read',
    summary:
      'Events, the newest first. A page may be short although there is a `next`: then the search has stopped at `reached`',
    query: {
      ...pageFields,
      order: { kind: 'text', choices: ['newest', 'oldest'], summary: 'Default: newest' },
      types: { kind: 'list', summary: 'Only events of these types' },
      stream: { kind: 'text', summary: 'Only events of this stream' },
      category: { kind: 'text', summary: 'Only events of this category' },
      correlationId: { kind: 'text', summary: 'Only events of this workflow' },
      userId: { kind: 'text', summary: 'Only events of this user' },
      headers: { kind: 'text', summary: 'Only events with these headers, a JSON object' },
      since: { kind: 'time', summary: 'Only events created at or after this time' },
      until: { kind: 'time', summary: 'Only events created before this time' },
    },
    cli: 'rillflow events list',
    async call({ store, query, redact }) {
      const { stream, category, headers, order, ...rest } = query
      const page = await store.events.list({
        ...rest,
        order,
        streams: stream === undefined ? undefined : [stream],
        categories: category === undefined ? undefined : [category],
        headers: parseHeaders(headers),
      })
      return { ...page, items: page.items.map(event => shownEvent(redact.event(event))) }
    },
  }),
  route('GET /events/types', {
    role: 'read',
    summary: 'The types that are defined, and those of the newest 10 000 events',
    cli: 'rillflow events types',
    call: async ({ store, readings }) => ({
      items: await readings.expensive('events.types', () => store.events.types()),
    }),
  }),
  route('GET /events/at/:position', {
    role: 'read',
    summary: 'The event at a position, or the first one after it',
    cli: 'rillflow events tail --after {position} --limit 1',
    async call({ store, parameters, redact }) {
      const position = Number(parameters.position)
      if (!Number.isSafeInteger(position) || position < 1) throw noEvent()
      // With an end, so that a position beyond the log has no event instead of being refused.
      const range = { from: position - 1, to: maxPosition, limit: 1, includeArchived: true }
      const [event] = await store.events.readAll(range).toArray()
      if (event === undefined) throw noEvent()
      return shownEvent(redact.event(event))
    },
  }),
  route('GET /events/:id', {
    role: 'read',
    summary: 'One event',
    query: { raw: { kind: 'flag', summary: 'Also as it is stored, with exact numbers' } },
    cli: 'rillflow events show {id}',
    async call({ store, parameters, query, redact }) {
      const event = await store.events.get(parameters.id)
      if (event === undefined) throw noEvent()
      const shown = redact.event(event)
      // Redacted values must not come back as text.
      if (query.raw !== true || shown !== event) return shown
      return { ...shown, stored: await store.events.stored(parameters.id) }
    },
  }),
  route('GET /events/:id/effects', {
    role: 'read',
    summary: 'The events that it caused, directly: those of its workflow that name it as their cause',
    cli: 'rillflow events list --correlation-id {id}',
    async call({ store, parameters, redact }) {
      const event = await store.events.get(parameters.id)
      if (event === undefined) throw noEvent()
      const { items, next } = await store.events.list({
        correlationId: event.correlationId,
        order: 'oldest',
        limit: 500,
      })
      const caused = items.filter(each => each.causationId === event.id)
      return { items: caused.map(each => shownEvent(redact.event(each))), next }
    },
  }),
]

function noEvent(): RequestRefused {
  return new RequestRefused(404, 'event_not_found', 'The log has no such event.')
}

function parseHeaders(text: string | undefined): Record<string, unknown> | undefined {
  if (text === undefined) return undefined
  try {
    const headers: unknown = JSON.parse(text)
    if (typeof headers === 'object' && headers !== null && !Array.isArray(headers))
      return headers as Record<string, unknown>
  } catch {}
  throw new RequestRefused(400, 'invalid_option', 'The parameter "headers" must be a JSON object.')
}
