/** Streams, and taking them out of use. */
import { StreamNotFound } from '../../../events/errors.ts'
import { pageFields, type Route, route } from '../route.ts'

export const streamRoutes: readonly Route[] = [
  route('GET /streams', {
    role: 'read',
    summary: 'Streams by name',
    query: {
      ...pageFields,
      category: { kind: 'text', summary: 'Only streams of this category' },
      state: { kind: 'text', choices: ['open', 'archived', 'all'], summary: 'Default: open' },
    },
    cli: 'rillflow streams list',
    call: ({ store, query }) => store.streams.list(query),
  }),
  route('GET /streams/:stream', {
    role: 'read',
    summary: 'One stream',
    cli: 'rillflow streams show {stream}',
    async call({ store, parameters: { stream } }) {
      const found = await store.streams.describe(stream)
      if (found === undefined) throw new StreamNotFound({ stream })
      return found
    },
  }),
]
