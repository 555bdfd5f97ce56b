/** `rillflow workflows show` */
import { type Command, defineCommand } from '../command.ts'
import { ago, duration } from '../output/amount.ts'
import { paintState } from '../output/consumer.ts'
import { table } from '../output/table.ts'
import { knownStatus, statusInFull, workflowArgument } from './known.ts'

export const showCommand: Command = defineCommand({
  arguments: [workflowArgument],
  options: { attempts: { kind: 'whole', default: 20, value: 'COUNT', summary: 'How many of the latest attempts' } },
  examples: ['rillflow workflows show 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001'],
  async run({ out, open, arguments: { workflow }, options }) {
    const { store } = await open()
    const status = await knownStatus(store, workflow)
    const { attempts } = await store.workflows.attempts({ correlationId: workflow, limit: options.attempts })
    out.print({ ...status, attempts }, style =>
      [
        statusInFull(style, status),
        '',
        table(
          style,
          attempts,
          [
            { title: 'HANDLER', of: each => each.handler },
            { title: 'ATTEMPT', of: each => each.attempt, right: true },
            {
              title: 'RESULT',
              of: each => each.outcome ?? each.kind,
              paint: (each, colour) => paintState(each.kind, colour),
            },
            {
              title: 'TOOK',
              of: each => (each.runningMs === undefined ? undefined : duration(each.runningMs)),
              right: true,
            },
            { title: 'ENDED', of: each => ago(each.at, style.now), paint: (_, colour) => colour.dim },
            { title: 'ERROR', of: each => each.error?.message, cut: true },
          ],
          'No attempts yet.',
        ),
      ].join('\n'),
    )
  },
})
