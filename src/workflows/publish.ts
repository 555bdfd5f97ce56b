/**
 * Publishing: an event that begins a workflow, or is part of one. It is an append like any other, to the workflow's own stream
 * unless it names another.
 *
 * With an idempotency key, the id of the event and the id of its workflow follow from the schema and the key: a repeat, in
 * whatever process, finds the same workflow. The same key with other content, or for another stream, is refused.
 */
import { createHash } from 'node:crypto'
import { canonicalUuid, derivedId } from '../core/id.ts'
import { checkName } from '../core/name.ts'
import { describe, optionNames, refuseUnknownOptions } from '../core/options.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import { type AppendParts, appendEvents } from '../events/append/append.ts'
import type { Expected } from '../events/append/prepare.ts'
import type { AppendResult } from '../events/append/send.ts'
import type { NewEventOf, RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { checkCount, refusal } from './handler.ts'

/**
 * How an event is published.
 *
 * @example
 * ```ts
 * const options: PublishOptions = { idempotencyKey: 'order-13', attributes: { customer: 'c-1' } }
 * await store.workflows.publish('OrderPlaced', placed.data, options)
 * ```
 */
export interface PublishOptions {
  /** A UUID that makes it repeatable: the same id with the same content is published once. */
  id?: string | undefined
  /** Text that makes it repeatable: a repeat with the same content finds the same workflow. */
  idempotencyKey?: string | undefined
  /** The workflow it is part of. Default: a new one, named by the event's id. */
  correlationId?: string | undefined
  causationId?: string | undefined
  userId?: string | undefined
  headers?: Readonly<Record<string, unknown>> | undefined
  /** Found by `store.workflows.list({ attributes })`: those of all events of a workflow together, the newest first. */
  attributes?: Attributes | undefined
  /** Default: the workflow's own stream. */
  stream?: string | undefined
  /** The version that stream must have. Default 'any'. */
  expected?: Expected | undefined
  /** Its place in a batch that a join waits for, for an event that no handler emits. Needs the correlation id. */
  batch?: BatchPlace | undefined
  /** Publish inside this transaction: one of the store's, or a `pg` client with an open transaction of yours. */
  tx?: AnyTransaction | undefined
  signal?: AbortSignal | undefined
}

export const publishOptionNames: readonly string[] = optionNames<PublishOptions>({
  ...{
    id: true,
    idempotencyKey: true,
    correlationId: true,
    causationId: true,
    userId: true,
    headers: true,
    attributes: true,
  },
  ...{ stream: true, expected: true, batch: true, tx: true, signal: true },
})

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
  refuseUnknownOptions('store.workflows.publish', options, publishOptionNames)
  const { event, stream } = publishedEvent(parts.log, type, data, options, parent)
  const { expected, tx, signal, idempotencyKey } = options
  const [result] = await appendEvents(
    parts,
    [{ stream, events: [event], expected }],
    { tx, signal, idempotencyKey },
    {
      // An id that the store has just made cannot be there before.
      checkIds: options.id !== undefined || idempotencyKey !== undefined,
    },
  )
  return Object.assign(result!, { correlationId: event.correlationId, eventId: event.id })
}

type PublishedEvent = NewEventOf<string, unknown> & { readonly id: string; readonly correlationId: string }

/** The event, and the stream it goes to. */
export function publishedEvent(
  { ids, schema }: Pick<Log, 'ids' | 'schema'>,
  type: string,
  data: unknown,
  options: PublishOptions,
  parent?: string,
): { readonly event: PublishedEvent; readonly stream: string } {
  const { idempotencyKey: key } = options
  if (key !== undefined) checkName('Idempotency key', key)
  const made = (): string => (key === undefined ? ids.next() : derivedId(new Date(0), 'publish', schema, key))
  const id = options.id === undefined ? made() : canonicalUuid(options.id)
  if (id === undefined) throw refusal('An event', 'id', `needs a UUID as "id", not ${describe(options.id)}.`)
  const correlationId = options.correlationId ?? id
  checkName('Correlation id', correlationId)
  const { causationId, userId, headers, attributes } = options
  if (attributes !== undefined) checkAttributes('An event', attributes)
  const batches = options.batch === undefined ? [] : [checkBatch(options.batch, options.correlationId)]
  const event = {
    ...{ type, data, id, correlationId, causationId, userId },
    headers: { ...headers, ...headerOf({ parent, batches, attributes }) },
  }
  return { event, stream: options.stream ?? workflowStream(correlationId) }
}

function checkBatch({ id, index, size }: BatchPlace, correlationId: string | undefined): BatchPlace {
  const what = 'The place of an event in a batch'
  const known = canonicalUuid(String(id))
  if (known === undefined) throw refusal(what, 'batch', `needs a UUID as "id", not ${describe(id)}.`)
  if (correlationId === undefined)
    throw refusal(what, 'batch', 'is one of a workflow that exists. Give its "correlationId", too.')
  checkCount(what, 'batch.size', size, 1)
  checkCount(what, 'batch.index', index, 0, size - 1)
  return { id: known, index, size }
}

/** Of a workflow, for lists. */
export type Attributes = Readonly<Record<string, string | number | boolean>>

export function checkAttributes(what: string, attributes: unknown): void {
  const isPlain = typeof attributes === 'object' && attributes !== null && !Array.isArray(attributes)
  const entries = isPlain ? Object.entries(attributes) : []
  const isWrong = ([name, value]: [string, unknown]): boolean =>
    name === '' || !(typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value))
  const wrong = entries.find(isWrong)
  if (!isPlain || wrong !== undefined)
    throw refusal(
      what,
      'attributes',
      `needs names with text, numbers or booleans as "attributes", not ${describe(wrong?.[1] ?? attributes)}.`,
    )
  const bytes = Buffer.byteLength(JSON.stringify(attributes))
  if (entries.length > 20 || bytes > 2_000)
    throw refusal(
      what,
      'attributes',
      `may have 20 attributes and 2000 bytes of them, and has ${entries.length} and ${bytes}.`,
    )
}

// ── the header `workflow` ────────────────────────────────────────────────────────────────────────────────────
//
// It has the distance of an event from the first one, the handler that emitted it, and its place in batches, the
// innermost last.

export interface BatchPlace {
  readonly id: string
  readonly index: number
  readonly size: number
}

export interface Envelope {
  readonly hops: number
  /** The handler that emitted it; undefined if it was published. */
  readonly handler: string | undefined
  readonly batches: readonly BatchPlace[]
  /** The correlation id of the workflow that started this one. */
  readonly parent: string | undefined
  /** The handler whose failure it reports, which must not be run by it. */
  readonly failed: string | undefined
  /** Those that it gives its workflow. */
  readonly attributes: Attributes | undefined
}

/** As it is in the header: empty values are omitted. */
export interface EnvelopeHeader {
  readonly hops?: number
  readonly handler?: string
  readonly batches?: readonly BatchPlace[]
  readonly parent?: string
  readonly failed?: string
  readonly attributes?: Attributes
}

/** Headers come from anywhere: a value of the wrong shape counts as absent. */
export function envelopeOf({ headers }: Pick<RecordedEvent, 'headers'>): Envelope {
  const header = headers.workflow
  if (typeof header !== 'object' || header === null) return plain
  const { hops, handler, batches, parent, failed, attributes } = header as Record<string, unknown>
  return {
    hops: Number.isSafeInteger(hops) && (hops as number) >= 0 ? (hops as number) : 0,
    handler: text(handler),
    batches: Array.isArray(batches) ? batches.filter(isPlace) : [],
    parent: text(parent),
    failed: text(failed),
    attributes: isAttributes(attributes) ? attributes : undefined,
  }
}

export function headerOf(envelope: Partial<Envelope>): { workflow?: EnvelopeHeader } {
  const { hops = 0, handler, batches = [], parent, failed, attributes } = envelope
  const header: EnvelopeHeader = {
    ...(hops > 0 ? { hops } : {}),
    ...(handler === undefined ? {} : { handler }),
    ...(batches.length === 0 ? {} : { batches }),
    ...(parent === undefined ? {} : { parent }),
    ...(failed === undefined ? {} : { failed }),
    ...(attributes === undefined ? {} : { attributes }),
  }
  return Object.keys(header).length === 0 ? {} : { workflow: header }
}

const plain: Envelope = {
  ...{ hops: 0, handler: undefined, batches: [], parent: undefined, failed: undefined, attributes: undefined },
}

function isAttributes(value: unknown): value is Attributes {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

function isPlace(value: unknown): value is BatchPlace {
  const { id, index, size } = (value ?? {}) as Record<string, unknown>
  const isCount = (n: unknown): n is number => Number.isSafeInteger(n) && (n as number) >= 0 && (n as number) < 2 ** 31
  return typeof id === 'string' && uuid.test(id) && isCount(index) && isCount(size) && index < size
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/**
 * The stream of a workflow's events that name no other. Streams and correlation ids have names of up to 255 bytes, so a
 * digest stands for a very long id.
 */
export function workflowStream(correlationId: string): string {
  const name = `workflow-${correlationId}`
  if (name.length * 3 <= maxBytes || Buffer.byteLength(name) <= maxBytes) return name
  return `workflow-${createHash('sha256').update(correlationId).digest('hex')}`
}

const maxBytes = 255
