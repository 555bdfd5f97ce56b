/** `rillflow events append` */
import { type Command, defineCommand } from '../command.ts'
import { WrongUsage } from '../usage.ts'

export const appendCommand: Command = defineCommand({
  description: 'The event is checked as the configuration defines it. An embedded store that is not there is made.',
  arguments: [
    { name: 'stream', summary: 'The stream it belongs to' },
    { name: 'type', summary: 'What happened, in the past tense' },
    { name: 'data', summary: 'JSON', kind: 'json', optional: true },
  ],
  options: {
    expected: {
      kind: 'text',
      value: 'VERSION',
      summary: 'The version the stream must have: a number, empty, exists or any',
    },
    key: { kind: 'text', value: 'KEY', summary: 'An idempotency key: the same append again changes nothing' },
    headers: { kind: 'json', value: 'JSON', summary: 'Headers of the event' },
    correlationId: { kind: 'text', value: 'ID', summary: 'The workflow it is part of' },
    causationId: { kind: 'text', value: 'ID', summary: 'The id of what caused it' },
    user: { kind: 'text', value: 'USER', summary: 'Who did it' },
  },
  examples: [`rillflow events append order-42 OrderPlaced '{"total":99}' --expected empty`],
  async run({ out, open, arguments: { stream, type, data }, options }) {
    const expected = expectedOf(options.expected)
    const { headers } = options
    if (headers !== undefined && (typeof headers !== 'object' || headers === null || Array.isArray(headers)))
      throw new WrongUsage({ reason: '--headers must be an object' })
    const { store } = await open({ creates: true })
    const event = {
      ...{ type, data: data ?? {}, headers: headers as Record<string, unknown> | undefined },
      ...{ correlationId: options.correlationId, causationId: options.causationId, userId: options.user },
    }
    const result = await store.events.append(stream, event, { expected, idempotencyKey: options.key })
    out.print(result, style => {
      const told = result.repeated ? 'Was appended before' : style.colour.green('Appended')
      return `${told}: ${type} to ${stream}, version ${result.version}, position ${result.position}.`
    })
  },
})

function expectedOf(text: string | undefined): number | 'empty' | 'exists' | 'any' | undefined {
  if (text === undefined || text === 'empty' || text === 'exists' || text === 'any') return text
  if (/^\d+$/.test(text)) return Number(text)
  throw new WrongUsage({ reason: `--expected must be a version, empty, exists or any, not ${JSON.stringify(text)}` })
}
