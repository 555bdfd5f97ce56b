/** The live feed. */

import { openFeed, type Topic, topics } from '../../live/feed.ts'
import { RequestRefused } from '../answer.ts'
import { mayAct, type Route, route } from '../route.ts'

export const liveRoutes: readonly Route[] = [
  route('GET /live', {
    role: 'watch',
    summary:
      'Server-sent events: `figures` every 2 s, `events`, `activity`, `deadLetters`, `operations` as they come, `gap` after a long absence. Each message is a list',
    query: {
      topics: {
        kind: 'list',
        choices: topics,
        required: true,
        summary: 'What to follow; all but figures need the role read',
      },
      types: { kind: 'list', summary: 'Only events of these types' },
      stream: { kind: 'text', summary: 'Only events of this stream' },
      category: { kind: 'text', summary: 'Only events of this category' },
      correlationId: { kind: 'text', summary: 'Only events and activity of this workflow' },
      after: { kind: 'text', summary: 'The id of the last message, to continue there; as the header Last-Event-ID' },
    },
    cli: 'rillflow events tail --follow',
    async call({ store, readings, operations, redact, live, identity, address, request, query }) {
      const wanted = query.topics as readonly Topic[]
      if (!mayAct(identity.role, 'read') && wanted.some(topic => topic !== 'figures'))
        throw new RequestRefused(403, 'forbidden', 'The role "watch" sees figures alone.')
      const onEnd = live.begin(`${identity.by} ${identity.name} ${address ?? ''}`)
      const ended = new AbortController()
      for (const signal of [request.signal, live.signal]) {
        if (signal.aborted) ended.abort()
        signal.addEventListener('abort', () => ended.abort(), { once: true, signal: ended.signal })
      }
      const { correlationId } = query
      try {
        return await openFeed({
          ...{ store, readings, operations, redact, onEnd, correlationId, topics: wanted, signal: ended.signal },
          after: query.after ?? request.headers.get('last-event-id') ?? undefined,
          filter: {
            types: query.types,
            streams: query.stream === undefined ? undefined : [query.stream],
            categories: query.category === undefined ? undefined : [query.category],
            correlationId,
          },
        })
      } catch (error) {
        onEnd()
        throw error
      }
    },
  }),
]
