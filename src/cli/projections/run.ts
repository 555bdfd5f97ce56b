/** `rillflow projections run` */
import { type Command, defineCommand } from '../command.ts'
import { complaints } from '../complaints.ts'
import { count } from '../output/amount.ts'
import { openWithProjections } from './registered.ts'

export const runCommand: Command = defineCommand({
  description: 'Shares the projections with daemons elsewhere. Handlers and subscriptions are run by `rillflow run`.',
  examples: ['rillflow projections run'],
  async run({ out, signal, open, config }) {
    const { store, names } = await openWithProjections({ open, config }, { logger: complaints(out), creates: true })
    out.note(`Running ${count(names.length, 'projection')}: ${names.join(', ')}. Ctrl-C ends it.`)
    await store.projections.run(signal)
  },
})
