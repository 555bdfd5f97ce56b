/** `rillflow projections run-until-idle` */
import type { Tick } from '../../consumers/run/tick.ts'
import { type Command, defineCommand } from '../command.ts'
import { openWithProjections } from './registered.ts'
import { reportTicks } from './report-ticks.ts'

export const runUntilIdleCommand: Command = defineCommand({
  description: 'Ends when nothing is left that could be done now: for a cron call, or before a report.',
  arguments: [{ name: 'name', summary: 'Only this projection', names: 'projection', optional: true }],
  examples: ['rillflow projections run-until-idle', 'rillflow projections run-until-idle order-totals --json'],
  async run({ out, arguments: { name }, signal, open, config }) {
    const { store, names } = await openWithProjections({ open, config })
    const bar = out.progress('Applying')
    const ticks: Record<string, Tick> = {}
    let done = 0
    try {
      for (const each of name === undefined ? names : [name]) {
        let tick: Tick
        let count = 0
        do {
          tick = await store.projections.tickOnce(each, { signal })
          count += tick.count
          done += tick.count
          bar.update(done, undefined, 'event')
        } while (tick.result === 'processed')
        ticks[each] = { ...tick, count }
      }
    } finally {
      bar.end()
    }
    return reportTicks(out, ticks)
  },
})
