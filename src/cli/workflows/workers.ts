/** `rillflow workflows workers` */
import { type Command, defineCommand } from '../command.ts'
import { ago, duration } from '../output/amount.ts'
import { table } from '../output/table.ts'

export const workersCommand: Command = defineCommand({
  description:
    'And the handlers, with what each still has to do: one without workers waits for somebody who has its code.',
  examples: ['rillflow workflows workers'],
  async run({ out, open }) {
    const { store } = await open()
    const [workers, handlers] = [await store.workflows.workers(), await store.workflows.handlers()]
    out.print({ workers, handlers }, style =>
      [
        table(
          style,
          workers,
          [
            { title: 'WORKER', of: each => each.id, cut: true, paint: (_, colour) => colour.cyan },
            { title: 'NODE', of: each => each.node },
            { title: 'RUNNING', of: each => `${each.running} of ${each.concurrency}`, right: true },
            {
              title: 'HEARTBEAT',
              of: each => `${duration(each.heartbeatAgeMs)} ago`,
              paint: (_, colour) => colour.dim,
            },
            { title: 'STARTED', of: each => ago(each.startedAt, style.now), paint: (_, colour) => colour.dim },
          ],
          'No workers are alive.',
        ),
        '',
        table(
          style,
          handlers,
          [
            {
              title: 'HANDLER',
              of: each => (each.version === 1 ? each.handler : `${each.handler} v${each.version}`),
              paint: (_, colour) => colour.cyan,
            },
            { title: 'KIND', of: each => each.kind },
            { title: 'WORKERS', of: each => each.workers, right: true },
            { title: 'READY', of: each => each.open.ready, right: true },
            { title: 'RUNNING', of: each => each.open.running, right: true },
            {
              title: 'WAITING',
              of: ({ open: { ready, running, ...waiting } }) => Object.values(waiting).reduce((a, b) => a + b, 0),
              right: true,
            },
            { title: 'EVENTS', of: each => each.types?.join(', ') ?? 'all', cut: true },
          ],
          'No handlers.',
        ),
      ].join('\n'),
    )
  },
})
