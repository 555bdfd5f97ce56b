/** `rillflow workflows retry` */
import { type Command, defineCommand } from '../command.ts'
import { count } from '../output/amount.ts'
import { knownStatus, workflowArgument } from './known.ts'

export const retryCommand: Command = defineCommand({
  description: 'Asks for all its open dead letters; the next worker that has their handlers runs them.',
  arguments: [workflowArgument],
  options: { handler: { kind: 'text', value: 'NAME', names: 'handler', summary: 'Only what this handler failed on' } },
  examples: ['rillflow workflows retry 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { workflow }, options: { handler } }) {
    const { store } = await open()
    await knownStatus(store, workflow)
    const asked = await store.workflows.deadLetters.retryAll({ correlationId: workflow, handler })
    out.print({ correlationId: workflow, ...asked }, () => {
      const told = `Asked for another try of ${count(asked.requested, 'dead letter')} of workflow ${workflow}.`
      return asked.isRunning || asked.requested === 0 ? told : `${told} No worker is running: rillflow run`
    })
  },
})
