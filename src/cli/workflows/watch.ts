/** `rillflow workflows watch` */
import type { Activity } from '../../workflows/insight/activity.ts'
import { type Command, defineCommand } from '../command.ts'
import { clockTime, duration } from '../output/amount.ts'
import { paintState } from '../output/consumer.ts'
import type { Style } from '../output/output.ts'

export const watchCommand: Command = defineCommand({
  description:
    'Each thing once and in order. Of one workflow from its beginning, of all of them from now on. With --json a line of NDJSON each.',
  arguments: [{ name: 'workflow', summary: 'Its correlation id; without it all workflows', optional: true }],
  options: {
    untilSettled: { kind: 'flag', summary: 'End when the workflow is settled' },
    handler: { kind: 'text', value: 'NAME', names: 'handler', summary: 'Only of this handler' },
    after: { kind: 'position', value: 'POSITION', summary: 'Go on behind a line seen before' },
  },
  examples: [
    'rillflow workflows watch',
    'rillflow workflows watch 01936f1c-5d0e-7c11-a4e2-51a6e3c0a001 --until-settled',
  ],
  async run({ out, open, arguments: { workflow }, options: { untilSettled, handler, after }, signal }) {
    const { store } = await open()
    const until = untilSettled ? ('settled' as const) : undefined
    const lines =
      workflow === undefined
        ? store.workflows.watch({ handler, after, signal })
        : store.workflows.flow(workflow).watch({ handler, after, until, signal })
    for await (const activity of lines) out.line(activity, style => activityLine(style, activity))
  },
})

export function activityLine({ colour }: Style, activity: Activity): string {
  const { at, kind, outcome, correlationId, handler, eventType, attempt, runningMs, error } = activity
  const told = [
    colour.dim(clockTime(at)),
    colour.cyan(correlationId),
    paintState(kind === 'completed' || kind === 'started' ? 'running' : kind, colour)(kind.padEnd(10)),
    `${handler} (${eventType ?? 'event gone'})`,
    ...(attempt > 1 ? [colour.dim(`attempt ${attempt}`)] : []),
    ...(outcome === undefined ? [] : [colour.dim(outcome)]),
    ...(runningMs === undefined ? [] : [colour.dim(duration(runningMs))]),
    ...(error === undefined ? [] : [colour.red(error.message)]),
  ]
  return told.join('  ')
}
