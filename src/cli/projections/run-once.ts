/** `rillflow projections run-once` */
import { type Command, defineCommand } from '../command.ts'
import { openWithProjections } from './registered.ts'
import { reportTicks } from './report-ticks.ts'

export const runOnceCommand: Command = defineCommand({
  arguments: [{ name: 'name', summary: 'Only this projection', names: 'projection', optional: true }],
  examples: ['rillflow projections run-once', 'rillflow projections run-once order-totals'],
  async run({ out, arguments: { name }, signal, open, config }) {
    const { store } = await openWithProjections({ open, config })
    const { projections } = store
    const ticks =
      name === undefined
        ? await projections.tickAll({ signal })
        : { [name]: await projections.tickOnce(name, { signal }) }
    return reportTicks(out, ticks)
  },
})
