/** `rillflow projections metrics` */
import { nearestName } from '../../core/nearest.ts'
import { type Command, defineCommand } from '../command.ts'
import { digits } from '../output/amount.ts'
import { table } from '../output/table.ts'
import { NothingFound } from '../usage.ts'

export const metricsCommand: Command = defineCommand({
  arguments: [{ name: 'name', summary: 'Only this projection', names: 'projection', optional: true }],
  examples: ['rillflow projections metrics', 'rillflow projections metrics order-totals --json'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    const all = await store.projections.metrics()
    if (name !== undefined && all[name] === undefined) {
      const nearest = nearestName(name, Object.keys(all))
      throw new NothingFound({
        what: 'projection',
        given: name,
        hint: `rillflow projections metrics ${nearest ?? ''}`.trim(),
      })
    }
    const chosen = name === undefined ? all : { [name]: all[name]! }
    out.print(chosen, style =>
      table(
        style,
        Object.entries(chosen),
        [
          { title: 'PROJECTION', of: ([each]) => each, paint: (_, colour) => colour.cyan },
          { title: 'LAG', of: ([, each]) => digits(each.lag), right: true },
          { title: 'LAG SECONDS', of: ([, each]) => each.lagSeconds.toFixed(1), right: true },
          { title: 'FAILURES', of: ([, each]) => each.attempts, right: true },
          { title: 'DEAD LETTERS', of: ([, each]) => each.deadLetters, right: true },
          { title: 'PAUSED', of: ([, each]) => (each.isPaused ? 'yes' : 'no') },
        ],
        'No projections.',
      ),
    )
  },
})
