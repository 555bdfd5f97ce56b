/** `rillflow streams list` */
import { type Command, defineCommand } from '../command.ts'
import { ago, digits } from '../output/amount.ts'
import { table } from '../output/table.ts'

export const listCommand: Command = defineCommand({
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
