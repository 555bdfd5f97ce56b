/**
 * The verbs of `rillflow streams` that show a stream over time: its state at a version, the event behind each field, its
 * snapshots. They fold with the code of the configuration.
 *
 * What can fail: an aggregate or projection that the configuration does not have; the error names the nearest one.
 */
import { type Argument, type Command, defineCommand } from '../command.ts'
import { listCommand } from '../list-command.ts'
import { ago, digits } from '../output/amount.ts'
import { toJson } from '../output/output.ts'

const stream = { name: 'stream', summary: 'The name of the stream' } as const satisfies Argument

const of = {
  kind: 'text',
  value: 'NAME',
  required: true,
  summary: 'The aggregate or document projection that folds the stream',
} as const

export const state: Command = defineCommand({
  description:
    'Folds its events anew, so it shows what the code of the configuration makes of them, whatever is stored.',
  arguments: [stream],
  options: {
    of,
    version: { kind: 'whole', value: 'VERSION', summary: 'The state at this version. Default: the newest' },
    at: { kind: 'time', value: 'TIME', summary: 'The state at this time, or at an age such as 15m, 2h, 7d' },
  },
  examples: [
    'rillflow streams state order-42 --of order --version 3',
    'rillflow streams state order-42 --of order --at 1h',
  ],
  async run({ out, open, arguments: { stream: name }, options: { of: folding, version, at } }) {
    const { store } = await open()
    const found = await store.states.at(folding, name, { version, at })
    out.print(
      found,
      style => `${style.colour.dim(`version ${found.version}`)}\n${JSON.stringify(found.state, null, 2)}`,
    )
  },
})

export const steps: Command = listCommand({
  description: 'Shows the state after each event, at most 200, and the fields that the event has changed.',
  arguments: [stream],
  options: {
    of,
    from: { kind: 'whole', default: 1, value: 'VERSION', summary: 'The first version' },
    to: { kind: 'whole', value: 'VERSION', summary: 'The last version. Default: 199 after the first' },
  },
  examples: ['rillflow streams steps order-42 --of order --from 2 --to 5'],
  empty: 'The stream has no such version.',
  list: async (store, { stream: name, of: folding, from, to }) => ({
    items: await store.states.steps(folding, name, { from, to: to ?? from + 199 }),
    next: undefined,
  }),
  columns: () => [
    { title: 'VERSION', of: ({ version }) => version, right: true },
    { title: 'EVENT', of: ({ event }) => event.type, paint: (_, colour) => colour.cyan },
    { title: 'CHANGED', of: ({ changed }) => changed.join(', '), cut: true },
    { title: 'STATE', of: each => toJson(each.state), cut: true },
  ],
})

export const blame: Command = listCommand({
  description: 'Shows, for each field of the state, the event that last changed it.',
  arguments: [stream],
  options: {
    of,
    version: { kind: 'whole', value: 'VERSION', summary: 'The state at this version. Default: the newest' },
  },
  examples: ['rillflow streams blame order-42 --of order'],
  empty: 'No event has set a field.',
  list: async (store, { stream: name, of: folding, version }) => {
    const { blame: fields } = await store.states.blame(folding, name, { version })
    return { items: Object.entries(fields).map(([path, by]) => ({ path, ...by })), next: undefined }
  },
  columns: ({ now }) => [
    { title: 'FIELD', of: ({ path }) => path },
    { title: 'VERSION', of: ({ version }) => version, right: true },
    { title: 'EVENT', of: ({ type }) => type, paint: (_, colour) => colour.cyan },
    { title: 'POSITION', of: ({ position }) => position, right: true },
    { title: 'BY', of: ({ userId }) => userId },
    { title: 'WHEN', of: ({ createdAt }) => ago(createdAt, now), paint: (_, colour) => colour.dim },
  ],
})

export const snapshots: Command = listCommand({
  arguments: [stream],
  examples: ['rillflow streams snapshots order-42'],
  empty: 'The stream has no snapshot.',
  list: async (store, { stream: name }) => ({ items: await store.states.snapshots(name), next: undefined }),
  columns: ({ now }) => [
    { title: 'VERSION', of: ({ version }) => version, right: true },
    { title: 'SHAPE', of: ({ stateVersion }) => stateVersion, right: true },
    { title: 'BYTES', of: ({ bytes }) => digits(bytes), right: true },
    { title: 'MADE', of: ({ createdAt }) => ago(createdAt, now), paint: (_, colour) => colour.dim },
  ],
})

export const tombstone: Command = defineCommand({
  description:
    'The stream gets a last event that says so, and refuses all appends from then on. Its events stay in the log. An archived stream can be restored; this cannot be undone.',
  arguments: [stream],
  options: { reason: { kind: 'text', value: 'TEXT', summary: 'The reason, which is stored with the stream' } },
  examples: ['rillflow streams tombstone order-42 --reason "a test" --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { stream: name }, options: { reason } }) {
    const { store } = await open()
    if (!(await confirm(`end stream ${name} for good`))) return
    await store.streams.tombstone(name, { reason })
    out.print({ stream: name, state: 'tombstoned' }, () => `Tombstoned ${name}.`)
  },
})
