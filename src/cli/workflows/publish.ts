/** `rillflow workflows publish` */
import { type Command, defineCommand } from '../command.ts'
import { statusInFull } from './known.ts'

export const publishCommand: Command = defineCommand({
  description: 'Somebody has to run the handlers: `rillflow run`, or your program.',
  arguments: [
    { name: 'type', summary: 'The type of the event' },
    { name: 'data', summary: 'JSON', kind: 'json', optional: true },
  ],
  options: {
    correlationId: { kind: 'text', value: 'ID', summary: 'The workflow it is part of. Default: a new one' },
    id: { kind: 'text', value: 'UUID', summary: 'Makes it repeatable: the same id is published once' },
    user: { kind: 'text', value: 'USER', summary: 'Who did it' },
    wait: { kind: 'flag', summary: 'Until the workflow is settled' },
    timeoutMs: { kind: 'whole', value: 'MS', default: 30_000, summary: 'With --wait: how long' },
  },
  examples: [`rillflow workflows publish OrderPlaced '{"total":99}' --wait`],
  async run({ out, open, arguments: { type, data }, options, signal }) {
    const { store } = await open({ creates: true })
    const { correlationId, id, user, wait, timeoutMs } = options
    const flow = await store.workflows.publish(type, data ?? {}, { correlationId, id, userId: user, signal })
    if (!wait) {
      out.print({ correlationId: flow.correlationId, type }, () => `Published ${type}, workflow ${flow.correlationId}.`)
      return
    }
    const status = await flow.settled({ timeoutMs, signal })
    out.print(status, style => statusInFull(style, status))
  },
})
