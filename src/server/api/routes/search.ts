/** One search over everything, for the palette of the console: bounded look-ups, side by side. */
import { canonicalUuid } from '../../../core/id.ts'
import type { Found } from '../contract.ts'
import { type Route, route } from '../route.ts'
import type { ApiStore } from '../source.ts'

const maxOfKind = 5

export const searchRoutes: readonly Route[] = [
  route('GET /search', {
    role: 'read',
    summary: 'Events by id or position; streams, workflows, consumers, handlers, schedules and collections by name',
    query: { q: { kind: 'text', required: true, summary: 'An id, a position, or the beginning of a name' } },
    async call({ store, readings, query }) {
      const text = query.q.trim()
      const looks = await Promise.all([
        byId(store, text),
        byPosition(store, text),
        byName(store, text, () => readings.expensive('search', () => readNames(store))),
      ])
      return { items: looks.flat() }
    },
  }),
]

const at = (...segments: readonly string[]): string => `/${segments.map(encodeURIComponent).join('/')}`

async function byId(store: ApiStore, text: string): Promise<Found[]> {
  const id = canonicalUuid(text)
  if (id === undefined) return []
  const event = await store.events.get(id)
  const status = await store.workflows.get(id).status()
  return [
    ...(event === undefined ? [] : [{ kind: 'event' as const, name: event.type, path: `/events?open=${event.id}` }]),
    ...(status.startedAt === undefined ? [] : [{ kind: 'workflow' as const, name: id, path: at('workflows', id) }]),
  ]
}

async function byPosition(store: ApiStore, text: string): Promise<Found[]> {
  const position = /^#?(\d{1,16})$/.exec(text)?.[1]
  if (position === undefined || Number(position) < 1) return []
  const [event] = await store.events
    .readAll({ from: Number(position) - 1, to: Number(position), limit: 1, includeArchived: true })
    .toArray()
  return event === undefined ? [] : [{ kind: 'event', name: event.type, path: `/events?open=${event.id}` }]
}

/** Everything that has a name and is not counted in thousands. */
async function readNames(store: ApiStore) {
  const [consumers, handlers, schedules, collections] = await Promise.all([
    store.consumers.list({ limit: 500 }),
    store.workflows.handlers.list({ limit: 500 }),
    store.workflows.schedules.list({ limit: 500 }),
    store.documents.list({ limit: 500 }),
  ])
  return { consumers, handlers, schedules, collections }
}

async function byName(store: ApiStore, text: string, names: () => ReturnType<typeof readNames>): Promise<Found[]> {
  if (text === '') return []
  const isMatch = (name: string): boolean => name.toLowerCase().includes(text.toLowerCase())
  const [streams, { consumers, handlers, schedules, collections }] = await Promise.all([
    store.streams.list({ prefix: text, state: 'all', limit: maxOfKind }),
    names(),
  ])
  const found = (kind: Found['kind'], folder: string, names: readonly string[]): Found[] =>
    [...new Set(names)]
      .filter(isMatch)
      .slice(0, maxOfKind)
      .map(name => ({ kind, name, path: at(folder, name) }))
  const isProjection = new Set(consumers.items.filter(each => each.kind === 'projection').map(each => each.name))
  const ofConsumers = consumers.items.map(each => each.name)
  return [
    ...streams.items.map(({ stream }) => ({ kind: 'stream' as const, name: stream, path: at('streams', stream) })),
    ...found(
      'consumer',
      'projections',
      ofConsumers.filter(name => isProjection.has(name)),
    ),
    ...found(
      'consumer',
      'consumers',
      ofConsumers.filter(name => !isProjection.has(name)),
    ),
    ...found(
      'handler',
      'handlers',
      handlers.items.map(each => each.handler),
    ),
    ...found(
      'schedule',
      'schedules',
      schedules.items.map(each => each.name),
    ),
    ...found(
      'collection',
      'documents',
      collections.items.map(each => each.name),
    ),
  ]
}
