/** `rillflow workflows signal` */
import { type Command, defineCommand } from '../command.ts'
import { knownStatus, workflowArgument } from './known.ts'

export const signalCommand: Command = defineCommand({
  description: 'For whoever waits for such an event in it.',
  arguments: [
    workflowArgument,
    { name: 'type', summary: 'The type of the event' },
    { name: 'data', summary: 'JSON', kind: 'json', optional: true },
  ],
  examples: [`rillflow workflows signal 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 OrderApproved '{"by":"Ada"}'`],
  async run({ out, open, arguments: { workflow, type, data } }) {
    const { store } = await open()
    await knownStatus(store, workflow)
    await store.workflows.flow(workflow).signal(type, data ?? {})
    out.print({ correlationId: workflow, type }, () => `Signalled ${type} to workflow ${workflow}.`)
  },
})
