/** `rillflow projections list` */
import { type Command, defineCommand } from '../command.ts'
import { lagOf, paintState, stateOf } from '../output/consumer.ts'
import { table } from '../output/table.ts'

export const listCommand: Command = defineCommand({
  description: 'Those of the configuration, and those that only the database knows.',
  examples: ['rillflow projections list', 'rillflow projections list --json'],
  async run({ out, open }) {
    const { store } = await open()
    const projections = await store.projections.list()
    out.print(projections, style =>
      table(
        style,
        projections,
        [
          { title: 'PROJECTION', of: each => each.name, cut: true, paint: (_, colour) => colour.cyan },
          {
            title: 'STATE',
            of: each => stateOf(each.status),
            paint: (each, colour) => paintState(stateOf(each.status), colour),
          },
          { title: 'CHECKPOINT', of: each => each.status?.checkpoint, right: true },
          { title: 'LAG', of: each => (each.status === undefined ? undefined : lagOf(each.status)), right: true },
          { title: 'DEAD LETTERS', of: each => each.status?.deadLetters, right: true },
          { title: 'CODE', of: each => (each.isRegistered ? 'here' : 'elsewhere'), paint: (_, colour) => colour.dim },
        ],
        'No projections.',
      ),
    )
  },
})
