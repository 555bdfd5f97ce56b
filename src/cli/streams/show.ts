/** `rillflow streams show` */

import { nearestName } from '../../core/nearest.ts'
import { StreamNotFound } from '../../events/errors.ts'
import type { Store } from '../../store.ts'
import { type Command, defineCommand } from '../command.ts'
import { eventLine } from '../events/event-line.ts'
import { ago } from '../output/amount.ts'
import { fields } from '../output/table.ts'

export const showCommand: Command = defineCommand({
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
