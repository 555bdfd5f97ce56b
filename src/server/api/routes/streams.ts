/** Streams: looking at them, appending, and taking them out of use. */

import { decodeCursor, encodeCursor } from '../../../core/page.ts'
import type { Expected } from '../../../events/append/prepare.ts'
import { StreamNotFound } from '../../../events/errors.ts'
import type { StreamDescription } from '../../../events/streams/streams.ts'
import { pageFields, type Route, repeatedName, route } from '../route.ts'
import { shownEvent } from '../shown.ts'
import type { ApiStore } from '../source.ts'

const reason = { kind: 'text', summary: 'Why, for people' } as const

export const streamRoutes: readonly Route[] = [
  route('GET /streams', {
    role: 'read',
    summary: 'Streams by name',
    query: {
      ...pageFields,
      prefix: { kind: 'text', summary: 'Only names that begin with it' },
      category: { kind: 'text', summary: 'Only streams of this category' },
      state: { kind: 'text', choices: ['open', 'archived', 'all'], summary: 'Default: open' },
    },
    cli: 'rillflow streams list',
    call: ({ store, query }) => store.streams.list(query),
  }),
  route('GET /streams/categories', {
    role: 'read',
    summary: 'The categories that streams have',
    cli: 'rillflow streams categories',
    call: ({ store, readings }) => readings.expensive('streams.categories', () => store.streams.categories()),
  }),
  route('GET /streams/:stream', {
    role: 'read',
    summary: 'One stream, by its name or by an alias',
    cli: 'rillflow streams show {stream}',
    async call({ store, parameters: { stream } }) {
      const found = (await store.streams.describe(stream)) ?? (await byAlias(store, stream))
      if (found === undefined) throw new StreamNotFound({ stream })
      return found
    },
  }),
  route('GET /streams/:stream/events', {
    role: 'read',
    summary: 'The events of a stream by version',
    query: {
      ...pageFields,
      from: { kind: 'whole', min: 0, summary: 'The lowest version' },
      to: { kind: 'whole', min: 0, summary: 'The highest version' },
      direction: { kind: 'text', choices: ['forwards', 'backwards'], summary: 'Default: forwards' },
    },
    cli: 'rillflow streams show {stream}',
    async call({ store, parameters: { stream }, query, redact }) {
      const { after, limit = 100, direction, from, to } = query
      const isBack = direction === 'backwards'
      const [last] = after === undefined ? [undefined] : (decodeCursor(after, 1) as [number])
      const events = await store.events
        .read(stream, {
          direction,
          from: last === undefined || isBack ? from : Math.max(last + 1, from ?? 0),
          to: last === undefined || !isBack ? to : Math.min(last - 1, to ?? Number.MAX_SAFE_INTEGER),
          limit: limit + 1,
          includeArchived: true,
        })
        .toArray()
      const items = events.slice(0, limit)
      return {
        items: items.map(event => shownEvent(redact.event(event))),
        next: events.length > limit ? encodeCursor([items.at(-1)!.version]) : undefined,
      }
    },
  }),
  route('GET /streams/:stream/snapshots', {
    role: 'read',
    summary: 'The snapshots that are stored of it: one for each shape that its state has had',
    cli: 'rillflow streams snapshots {stream}',
    call: async ({ store, parameters }) => ({ items: await store.states.snapshots(parameters.stream) }),
  }),
  route('POST /streams/:stream/append', {
    role: 'operate',
    summary: 'Appends one event; the header Idempotency-Key makes it repeatable',
    audit: 'events.append',
    body: {
      type: { kind: 'text', required: true, summary: 'The type of the event' },
      data: { kind: 'json', required: true, summary: 'Its data' },
      headers: { kind: 'json', summary: 'Its headers, an object' },
      expected: {
        kind: 'json',
        summary: `The version that the stream must have: a number, 'any', 'empty' or 'exists'`,
      },
    },
    cli: 'rillflow events append {stream} {type} {data}',
    call: ({ store, parameters, body, request, identity }) =>
      store.events.append(
        parameters.stream,
        [{ type: body.type, data: body.data, headers: body.headers as Record<string, unknown> | undefined }],
        {
          expected: body.expected as Expected | undefined,
          idempotencyKey: request.headers.get('idempotency-key') ?? undefined,
          userId: identity.name,
        },
      ),
  }),
  route('POST /streams/:stream/archive', {
    role: 'operate',
    summary: 'Refuses appends from now on, and hides it from ordinary reads',
    body: { reason },
    cli: 'rillflow streams archive {stream}',
    async call({ store, parameters, body }) {
      await store.streams.archive(parameters.stream, body)
      return { done: true }
    },
  }),
  route('POST /streams/:stream/restore', {
    role: 'operate',
    summary: 'Takes an archived stream into use again',
    cli: 'rillflow streams restore {stream}',
    async call({ store, parameters }) {
      await store.streams.restore(parameters.stream)
      return { done: true }
    },
  }),
  route('POST /streams/:stream/tombstone', {
    role: 'admin',
    summary: 'Ends the stream for good, with a last event that says so',
    body: { reason, confirm: { kind: 'text', required: true, summary: 'The name of the stream again' } },
    cli: 'rillflow streams tombstone {stream} --yes',
    async call({ store, parameters, body }) {
      repeatedName(parameters.stream, body.confirm)
      await store.streams.tombstone(parameters.stream, { reason: body.reason })
      return { done: true }
    },
  }),
]

async function byAlias(store: ApiStore, alias: string): Promise<StreamDescription | undefined> {
  const stream = await store.streams.find(alias)
  return stream === undefined ? undefined : store.streams.describe(stream)
}
