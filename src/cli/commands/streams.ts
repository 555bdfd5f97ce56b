/** Commands about streams. */
import { StreamNotFound } from '../../core/errors.ts'
import { nearestName } from '../../core/nearest.ts'
import type { Store } from '../../store.ts'
import { type Commands, defineCommand, defineVerbs } from '../command.ts'
import { ago, digits } from '../output/amount.ts'
import { fields, table } from '../output/table.ts'
import { eventLine } from './events.ts'

const list = defineCommand({
  options: {
    category: { kind: 'text', value: 'CATEGORY', summary: 'Only streams whose name begins with it and a "-"' },
    state: { kind: 'text', choices: ['open', 'archived', 'all'], default: 'open', value: 'STATE', summary: 'Which' },
    after: {
      kind: 'text',
      value: 'STREAM',
      summary: 'Only names that sort after this one: the last of the page before',
    },
    limit: { kind: 'whole', default: 50, value: 'COUNT', summary: 'How many at most' },
  },
  examples: ['rillflow streams list --category order', 'rillflow streams list --state archived --json'],
  async run({ out, open, options }) {
    const { store } = await open()
    const { category, state, after, limit } = options
    const streams = await store.streams.list({ category, state, after, limit })
    out.print(streams, style =>
      table(
        style,
        streams,
        [
          { title: 'STREAM', of: each => each.stream, cut: true, paint: (_, colour) => colour.cyan },
          { title: 'VERSION', of: each => digits(each.version), right: true },
          { title: 'POSITION', of: each => String(each.lastPosition), right: true },
          { title: 'STATE', of: each => each.state },
          { title: 'LAST EVENT', of: each => ago(each.lastEventAt, style.now), paint: (_, colour) => colour.dim },
        ],
        'No streams.',
      ),
    )
    if (streams.length === limit) out.note(`There may be more: rillflow streams list --after ${streams.at(-1)!.stream}`)
  },
})

const show = defineCommand({
  description: 'The latest events come last. An archived stream is shown, too.',
  arguments: [{ name: 'stream', summary: 'Its name' }],
  options: { limit: { kind: 'whole', default: 20, value: 'COUNT', summary: 'How many of the latest events' } },
  examples: ['rillflow streams show order-42'],
  async run({ out, open, arguments: { stream }, options: { limit } }) {
    const { store } = await open()
    const described = await store.streams.describe(stream)
    if (described === undefined) throw new StreamNotFound({ stream, nearest: await nearestStream(store, stream) })
    const read = { direction: 'backwards', limit, includeArchived: true } as const
    const events = limit === 0 ? [] : (await store.events.read(stream, read).toArray()).reverse()
    out.print({ ...described, lastPosition: described.lastPosition, events }, style =>
      [
        fields(style, {
          stream: style.colour.cyan(stream),
          version: described.version,
          state: described.state,
          reason: described.reason,
          created: `${described.createdAt.toISOString()} (${ago(described.createdAt, style.now)})`,
          'last event': `${described.lastEventAt.toISOString()} (${ago(described.lastEventAt, style.now)})`,
        }),
        '',
        ...events.map(event => eventLine(style, event)),
      ].join('\n'),
    )
  },
})

/** There may be too many to look at all of them: only at the first of its category, and at the first of all. */
async function nearestStream(store: Store, stream: string): Promise<string | undefined> {
  const [, category] = /^([^-]+)-/.exec(stream) ?? []
  const limit = 1000
  const alike = category === undefined ? [] : await store.streams.list({ category, state: 'all', limit })
  const others = await store.streams.list({ state: 'all', limit })
  return nearestName(
    stream,
    [...alike, ...others].map(each => each.stream),
  )
}

const resolve = defineCommand({
  description: 'The first call anywhere makes it; every other one gets the same.',
  arguments: [{ name: 'alias', summary: 'A name of your own, such as a customer number' }],
  options: { category: { kind: 'text', value: 'CATEGORY', summary: 'The category of the stream, should it be made' } },
  examples: ['rillflow streams resolve invoice:2026-0042 --category invoice'],
  async run({ out, open, arguments: { alias }, options: { category } }) {
    const { store } = await open()
    const stream = await store.streams.resolve(alias, { category })
    out.print({ alias, stream }, () => stream)
  },
})

const archive = defineCommand({
  description: 'Its events stay where they are, and rebuilds still see them; ordinary reads leave it out.',
  arguments: [{ name: 'stream', summary: 'Its name' }],
  options: { reason: { kind: 'text', value: 'TEXT', summary: 'Why, for people' } },
  examples: ['rillflow streams archive order-42 --reason "closed in 2025"'],
  async run({ out, open, arguments: { stream }, options: { reason } }) {
    const { store } = await open()
    await store.streams.archive(stream, { reason })
    out.print(
      await store.streams.describe(stream),
      () => `Archived ${stream}. Take it back with: rillflow streams restore ${stream}`,
    )
  },
})

const restore = defineCommand({
  description: 'A tombstoned stream stays as it is.',
  arguments: [{ name: 'stream', summary: 'Its name' }],
  examples: ['rillflow streams restore order-42'],
  async run({ out, open, arguments: { stream } }) {
    const { store } = await open()
    await store.streams.restore(stream)
    const described = await store.streams.describe(stream)
    out.print(described, () =>
      described?.state === 'open' ? `Restored ${stream}.` : `${stream} stays ${described?.state}.`,
    )
  },
})

export const streams: Commands = defineVerbs({
  list: ['Streams by name', list],
  show: ['A stream and its events', show],
  resolve: ['The stream that an alias stands for', resolve],
  archive: ['Refuse appends to a stream', archive],
  restore: ['Take a stream out of the archive', restore],
})
