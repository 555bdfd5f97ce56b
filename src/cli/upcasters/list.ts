/** `rillflow upcasters list` */
import { type Command, defineCommand } from '../command.ts'
import { table } from '../output/table.ts'
import { upcastersOf } from './configured.ts'

export const listCommand: Command = defineCommand({
  examples: ['rillflow upcasters list'],
  async run({ out, config }) {
    const steps = upcastersOf((await config())?.config).describe()
    out.print(steps, style =>
      table(
        style,
        steps,
        [
          { title: 'TYPE', of: each => each.type, paint: (_, colour) => colour.cyan },
          { title: 'FROM', of: each => (each.from === '*' ? 'any' : each.from), right: true },
          { title: 'TO TYPE', of: each => each.toType },
          { title: 'TO', of: each => each.to, right: true },
        ],
        'No upcasters in the configuration.',
      ),
    )
  },
})
