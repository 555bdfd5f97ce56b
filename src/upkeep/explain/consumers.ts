/** The verdict of each consumer about an event. */

import type { Consumer, ConsumerFilter } from '../../consumers/consumer.ts'
import type { ConsumerStatus } from '../../consumers/status.ts'
import { counted } from '../../core/core.ts'
import { isRillflowError } from '../../core/errors.ts'
import { category } from '../../core/name.ts'
import { everyItem } from '../../core/page.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { ExplainParts, Verdict } from './explain.ts'

export async function consumerVerdicts(parts: ExplainParts, event: RecordedEvent): Promise<Verdict[]> {
  const all = await everyItem(page => parts.consumers.list(page))
  const registered = new Map(parts.registered().map(each => [each.name, each]))
  const verdicts: Verdict[] = []
  for (const status of all) verdicts.push(await verdictOf(parts, event, status, registered.get(status.name)))
  return verdicts
}

async function verdictOf(
  { deadLetters }: ExplainParts,
  event: RecordedEvent,
  status: ConsumerStatus,
  code: Consumer | undefined,
): Promise<Verdict> {
  const { name, kind } = status
  const say = (state: Verdict['state'], reason: string, message: string, fix?: string): Verdict => ({
    ...{ name, kind, state, reason, message, fix },
  })
  if (code !== undefined && !wants(code.filter, event))
    return say('none', 'filteredOut', `Its filter leaves out events like this one.`)
  if (event.position <= status.checkpoint) {
    const found = await deadLetters.show({ consumer: name }, event.id).catch((error: unknown) => {
      if (isRillflowError(error, 'dead_letter_not_found')) return undefined
      throw error
    })
    if (found !== undefined && found.state !== 'replayed')
      return say(
        found.state === 'resolved' ? 'done' : 'blocked',
        'deadLetter',
        `It failed ${counted(found.attempts, 'time')} and was set aside: ${found.lastError.message}`,
        found.state === 'open' ? `rillflow dead-letters retry ${name} ${event.id}` : undefined,
      )
    if (status.state === 'inline') return say('done', 'inline', 'It was applied with the append.')
    return say('done', 'done', `It is passed: the checkpoint is ${status.checkpoint}.`)
  }
  if (status.isPaused) return say('blocked', 'paused', 'It is paused.', `rillflow consumers resume ${name}`)
  if (status.state === 'rebuilding') return say('waiting', 'rebuilding', 'It is being rebuilt.')
  if (status.attempts > 0) {
    const again = status.retryInMs === undefined ? 'now' : `in ${Math.ceil(status.retryInMs / 1000)} s`
    const where = status.lastError?.eventId === event.id ? 'this event' : 'an earlier event'
    const message = `It has failed ${counted(status.attempts, 'time')} at ${where} and tries again ${again}: ${status.lastError?.message}`
    return say('waiting', 'retrying', message)
  }
  if (status.lease === undefined)
    return say(
      'blocked',
      'notRunning',
      status.isRegistered ? 'No runner runs it.' : 'No runner runs it, and this process does not have its code.',
      'rillflow run',
    )
  const behind = event.position - status.checkpoint
  return say('waiting', 'behind', `It is ${counted(behind, 'position')} before this event, at ${status.checkpoint}.`)
}

function wants(filter: ConsumerFilter, event: RecordedEvent): boolean {
  const { types, streams, categories, correlationId, headers } = filter
  if (types !== undefined && !types.includes(event.type)) return false
  if (streams !== undefined && !streams.includes(event.stream)) return false
  if (categories !== undefined && !categories.includes(category(event.stream) ?? '')) return false
  if (correlationId !== undefined && event.correlationId !== correlationId) return false
  return Object.entries(headers ?? {}).every(
    ([name, value]) => JSON.stringify(event.headers[name]) === JSON.stringify(value),
  )
}
