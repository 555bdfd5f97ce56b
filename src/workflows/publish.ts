/** Publishing: an event that begins a workflow, or is part of one. An append like any other, to the workflow's own stream. */
import { InvalidOption } from '../core/errors.ts'
import { canonicalUuid } from '../core/id.ts'
import { checkName } from '../core/name.ts'
import { checkWhole } from '../core/whole.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import { type AppendParts, appendEvents } from '../events/append/append.ts'
import type { AppendResult } from '../events/append/outcome.ts'
import type { Expected } from '../events/append/prepare.ts'
import type { NewEventOf } from '../events/definition.ts'
import { type BatchPlace, headerOf } from './envelope.ts'
import { streamOf } from './stream.ts'

export interface PublishOptions {
  /** A UUID that makes it repeatable: the same id with the same content is published once. */
  id?: string | undefined
  /** The workflow it is part of. Default: a new one, called by the event's id. */
  correlationId?: string | undefined
  causationId?: string | undefined
  userId?: string | undefined
  headers?: Readonly<Record<string, unknown>> | undefined
  /** Default: the workflow's own stream. */
  stream?: string | undefined
  /** The version that stream must have. Default 'any'. */
  expected?: Expected | undefined
  /** Its place in a batch that a join waits for: for events that no handler emits. Needs the correlation id. */
  batch?: BatchPlace | undefined
  /** Publish inside this transaction: one of the store's, or a `pg` client with an open transaction of yours. */
  tx?: AnyTransaction | undefined
  signal?: AbortSignal | undefined
}

export interface Published extends AppendResult {
  readonly correlationId: string
  readonly eventId: string
}

export async function publish(
  parts: AppendParts,
  type: string,
  data: unknown,
  options: PublishOptions = {},
  parent?: string,
): Promise<Published> {
  const { event, stream } = publishedEvent(parts.log.ids, type, data, options, parent)
  const { expected, tx, signal } = options
  const [result] = await appendEvents(
    parts,
    [{ stream, events: [event], expected }],
    { tx, signal },
    {
      // An id of ours cannot be there before.
      checkIds: options.id !== undefined,
    },
  )
  return Object.assign(result!, { correlationId: event.correlationId, eventId: event.id })
}

type PublishedEvent = NewEventOf<string, unknown> & { readonly id: string; readonly correlationId: string }

/** The event, and the stream it goes to. */
export function publishedEvent(
  ids: { next(): string },
  type: string,
  data: unknown,
  options: PublishOptions,
  parent?: string,
): { readonly event: PublishedEvent; readonly stream: string } {
  const id = options.id === undefined ? ids.next() : canonicalUuid(options.id)
  if (id === undefined)
    throw new InvalidOption({ option: 'id', reason: `must be a UUID, not ${JSON.stringify(options.id)}` })
  const correlationId = options.correlationId ?? id
  checkName('Correlation id', correlationId)
  const { causationId, userId, headers } = options
  const batches = options.batch === undefined ? [] : [checkBatch(options.batch, options.correlationId)]
  const event = {
    ...{ type, data, id, correlationId, causationId, userId },
    headers: { ...headers, ...headerOf({ parent, batches }) },
  }
  return { event, stream: options.stream ?? streamOf(correlationId) }
}

function checkBatch({ id, index, size }: BatchPlace, correlationId: string | undefined): BatchPlace {
  const refuse = (reason: string): never => {
    throw new InvalidOption({ option: 'batch', reason })
  }
  const known = canonicalUuid(String(id)) ?? refuse(`must have a UUID as its id, not ${JSON.stringify(id)}`)
  if (correlationId === undefined) refuse('is one of one workflow: give the correlationId too')
  checkWhole('batch.size', size, 1)
  checkWhole('batch.index', index, 0, size - 1)
  return { id: known, index, size }
}
