/**
 * `rillflow streams`: the streams of events.
 *
 *     look        list · categories · show · resolve     an alias is resolved to its stream
 *     over time   state · steps · blame · snapshots      stream-states.ts
 *     control     archive · restore · tombstone          an archived stream refuses appends, and reads skip it
 *
 * What can fail: a stream that does not exist; `show` suggests the nearest name.
 */

import { nearestName } from '../../core/name.ts'
import { StreamNotFound } from '../../events/errors.ts'
import type { Store } from '../../store.ts'
import { type Argument, type Commands, defineCommand, defineVerbs } from '../command.ts'
import { listCommand, pageOptions } from '../list-command.ts'
import { ago, digits } from '../output/amount.ts'
import { fields } from '../output/table.ts'
import { eventLine } from './events.ts'
import { blame, snapshots, state, steps, tombstone } from './stream-states.ts'

const stream = { name: 'stream', summary: 'The name of the stream' } as const satisfies Argument

const list = listCommand({
  options: {
    category: { kind: 'text', value: 'CATEGORY', summary: 'Only streams whose name begins with this and a "-"' },
    prefix: { kind: 'text', value: 'PREFIX', summary: 'Only streams whose name begins with this' },
    state: {
      kind: 'text',
      choices: ['open', 'archived', 'all'],
      default: 'open',
      value: 'STATE',
      summary: 'Only streams in this state',
    },
    ...pageOptions,
  },
  examples: ['rillflow streams list --category order', 'rillflow streams list --state archived --json'],
  empty: 'There are no streams.',
  list: (store, given) => store.streams.list(given),
  columns: ({ now }) => [
    { title: 'STREAM', of: each => each.stream, cut: true, paint: (_, colour) => colour.cyan },
    { title: 'VERSION', of: ({ version }) => digits(version), right: true },
    { title: 'POSITION', of: ({ lastPosition }) => String(lastPosition), right: true },
    { title: 'STATE', of: ({ state }) => state },
    { title: 'LAST EVENT', of: ({ lastEventAt }) => ago(lastEventAt, now), paint: (_, colour) => colour.dim },
  ],
})

const categories = listCommand({
  description: 'At most 500 names are looked at. Streams that are named by a bare UUID have no category.',
  examples: ['rillflow streams categories'],
  empty: 'There are no streams.',
  list: async store => ({ items: (await store.streams.categories()).items, next: undefined }),
  columns: () => [
    { title: 'CATEGORY', of: ({ category }) => category, paint: (_, colour) => colour.cyan },
    { title: 'FIRST STREAM', of: ({ first }) => first, cut: true },
  ],
})

const show = defineCommand({
  description: 'Shows the stream and its latest events, the newest last. Archived streams are shown too.',
  arguments: [stream],
  options: { limit: { kind: 'whole', default: 20, value: 'COUNT', summary: 'The number of latest events to show' } },
  examples: ['rillflow streams show order-42'],
  async run({ out, open, arguments: { stream }, options: { limit } }) {
    const { store } = await open()
    const description = await store.streams.describe(stream)
    if (description === undefined) throw new StreamNotFound({ stream, nearest: await nearestStream(store, stream) })
    const read = { direction: 'backwards', limit, includeArchived: true } as const
    const events = limit === 0 ? [] : (await store.events.read(stream, read).toArray()).reverse()
    out.print({ ...description, events }, style => {
      const { version, state, reason, createdAt, lastEventAt } = description
      const summary = fields(style, {
        stream: style.colour.cyan(stream),
        version,
        state,
        reason,
        created: `${createdAt.toISOString()} (${ago(createdAt, style.now)})`,
        'last event': `${lastEventAt.toISOString()} (${ago(lastEventAt, style.now)})`,
      })
      return [summary, '', ...events.map(event => eventLine(style, event))].join('\n')
    })
  },
})

/** Searches only the first streams of the same category and the first of all: there may be too many to search all of them. */
async function nearestStream(store: Store, stream: string): Promise<string | undefined> {
  const [, category] = /^([^-]+)-/.exec(stream) ?? []
  const limit = 1000
  const ofCategory = category === undefined ? [] : (await store.streams.list({ category, state: 'all', limit })).items
  const { items: first } = await store.streams.list({ state: 'all', limit })
  const names = [...ofCategory, ...first].map(each => each.stream)
  return nearestName(stream, names)
}

const resolve = defineCommand({
  description: 'The first call for an alias creates the name of its stream; every later call gives the same name.',
  arguments: [{ name: 'alias', summary: 'A name of your own, such as a customer number' }],
  options: { category: { kind: 'text', value: 'CATEGORY', summary: 'The category of the stream, if it is created' } },
  examples: ['rillflow streams resolve invoice:2026-0042 --category invoice'],
  async run({ out, open, arguments: { alias }, options: { category } }) {
    const { store } = await open()
    const stream = await store.streams.resolve(alias, { category })
    out.print({ alias, stream }, () => stream)
  },
})

const archive = defineCommand({
  description:
    'The stream then refuses appends, and ordinary reads skip it. Its events stay in the log, and rebuilds still apply them.',
  arguments: [stream],
  options: { reason: { kind: 'text', value: 'TEXT', summary: 'The reason, which is stored with the stream' } },
  examples: ['rillflow streams archive order-42 --reason "closed in 2025"'],
  async run({ out, open, arguments: { stream }, options: { reason } }) {
    const { store } = await open()
    await store.streams.archive(stream, { reason })
    const description = await store.streams.describe(stream)
    out.print(description, () => `Archived ${stream}. To undo this: rillflow streams restore ${stream}`)
  },
})

const restore = defineCommand({
  description: 'A tombstoned stream cannot be restored.',
  arguments: [stream],
  examples: ['rillflow streams restore order-42'],
  async run({ out, open, arguments: { stream } }) {
    const { store } = await open()
    await store.streams.restore(stream)
    const description = await store.streams.describe(stream)
    out.print(description, () =>
      description?.state === 'open'
        ? `Restored ${stream}.`
        : `${stream} was not restored: it is ${description?.state}.`,
    )
  },
})

export const streams: Commands = defineVerbs({
  list: ['Show streams by name', list],
  categories: ['Show the categories that streams have', categories],
  show: ['Show a stream and its events', show],
  resolve: ['Show the stream that an alias stands for', resolve],
  archive: ['Archive a stream, so that it refuses appends', archive],
  restore: ['Restore an archived stream', restore],
  tombstone: ['End a stream for good', tombstone],
  state: ['Show the state of a stream at a version or a time', state],
  steps: ['Show the state after each event of a stream', steps],
  blame: ['Show the event behind each field of a state', blame],
  snapshots: ['Show the stored snapshots of a stream', snapshots],
})
