/** `rillflow workflows cancel` */
import { type Command, defineCommand } from '../command.ts'
import { knownStatus, statusInFull, workflowArgument } from './known.ts'

export const cancelCommand: Command = defineCommand({
  description:
    'Nothing more of it, or of what it has started, is run; what runs is told. What has been done stays done, unless it is compensated.',
  arguments: [workflowArgument],
  options: {
    reason: { kind: 'text', value: 'TEXT', summary: 'Why, for people' },
    compensate: { kind: 'flag', summary: 'Run the undos that its steps have recorded, newest first' },
  },
  examples: [
    'rillflow workflows cancel 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --reason "out of stock" --compensate --yes',
  ],
  destructive: true,
  async run({ out, open, confirm, arguments: { workflow }, options: { reason, compensate } }) {
    const { store } = await open()
    const before = await knownStatus(store, workflow)
    const deed = compensate ? 'cancel and compensate' : 'cancel'
    if (!(await confirm(`${deed} workflow ${workflow} (${before.state}, ${before.pending} pending)`))) return
    const status = await store.workflows.flow(workflow).cancel({ reason, compensate })
    out.print(status, style => statusInFull(style, status))
  },
})
