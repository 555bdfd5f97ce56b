/** `rillflow workflows run` */
import { type Command, defineCommand } from '../command.ts'
import { complaints } from '../complaints.ts'
import { workerOptions, workUntil } from './worker.ts'

export const runCommand: Command = defineCommand({
  description:
    'Takes work as long as it runs, together with workers elsewhere. Projections and subscriptions are run by `rillflow run`.',
  options: workerOptions,
  examples: ['rillflow workflows run --concurrency 32'],
  async run({ out, open, config, options, signal }) {
    const opened = await open({ logger: complaints(out), creates: true })
    await workUntil(opened, { out, config, options, signal })
  },
})
