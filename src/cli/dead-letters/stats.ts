/** `rillflow dead-letters stats` */
import { type Command, defineCommand } from '../command.ts'
import { digits } from '../output/amount.ts'
import { table } from '../output/table.ts'

export const statsCommand: Command = defineCommand({
  examples: ['rillflow dead-letters stats'],
  async run({ out, open }) {
    const { store } = await open()
    const stats = await store.deadLetters.stats()
    out.print(stats, style =>
      table(
        style,
        stats,
        [
          { title: 'CONSUMER', of: each => each.consumer, paint: (_, colour) => colour.cyan },
          {
            title: 'OPEN',
            of: each => digits(each.open),
            right: true,
            paint: (each, colour) => (each.open > 0 ? colour.red : colour.dim),
          },
          { title: 'RETRYING', of: each => digits(each.retrying), right: true },
          { title: 'REPLAYED', of: each => digits(each.replayed), right: true },
          { title: 'RESOLVED', of: each => digits(each.resolved), right: true },
        ],
        'No dead letters.',
      ),
    )
  },
})
