/** `rillflow workflows schedules` */
import { type Command, defineCommand } from '../command.ts'
import { ago } from '../output/amount.ts'
import { paintState } from '../output/consumer.ts'
import { toJson } from '../output/output.ts'
import { table } from '../output/table.ts'

export const schedulesCommand: Command = defineCommand({
  examples: ['rillflow workflows schedules'],
  async run({ out, open }) {
    const { store } = await open()
    const schedules = await store.workflows.schedules.list()
    out.print(schedules, style =>
      table(
        style,
        schedules,
        [
          { title: 'SCHEDULE', of: each => each.name, paint: (_, colour) => colour.cyan },
          {
            title: 'STATE',
            of: each => each.state,
            paint: (each, colour) => paintState(each.state === 'active' ? 'running' : each.state, colour),
          },
          { title: 'NEXT', of: each => ago(each.nextAt, style.now) },
          { title: 'LAST', of: each => ago(each.lastAt, style.now), paint: (_, colour) => colour.dim },
          { title: 'OUTCOME', of: each => each.lastOutcome },
          { title: 'CODE', of: each => (each.isHere ? 'here' : 'elsewhere'), paint: (_, colour) => colour.dim },
          { title: 'WHEN', of: each => toJson(each.definition), cut: true },
        ],
        'No schedules.',
      ),
    )
  },
})
