/** `rillflow projections status` */
import { type Command, defineCommand } from '../command.ts'
import { ago, duration } from '../output/amount.ts'
import { errorLine, lagOf, paintState, stateOf } from '../output/consumer.ts'
import { fields } from '../output/table.ts'

export const statusCommand: Command = defineCommand({
  arguments: [{ name: 'name', summary: 'The projection', names: 'projection' }],
  examples: ['rillflow projections status order-totals'],
  async run({ out, open, arguments: { name } }) {
    const { store } = await open()
    const status = await store.projections.status(name)
    out.print(status, style => {
      const state = stateOf(status)
      const { lease, retryInMs } = status
      return fields(style, {
        projection: style.colour.cyan(status.name),
        state: paintState(state, style.colour)(state),
        checkpoint: `${status.checkpoint} of ${status.head}`,
        lag: lagOf(status),
        'held by': lease === undefined ? undefined : `${lease.owner}, for ${duration(lease.expiresInMs)}`,
        'dead letters': status.deadLetters,
        failures: status.attempts === 0 ? undefined : `${status.attempts} in a row`,
        'next try': retryInMs === undefined ? undefined : `in ${duration(retryInMs)}`,
        'last error': errorLine(status.lastError),
        progressed: ago(status.progressedAt, style.now),
      })
    })
  },
})
