/**
 * The header `workflow` of an event: its distance from the first event, the handler that emitted it, and its place in
 * batches, the innermost last. Also the name of the stream of a workflow's own events.
 */
import { createHash } from 'node:crypto'
import type { RecordedEvent } from '../events/definition.ts'

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
}

/** As it is in the header: empty values are omitted. */
export interface EnvelopeHeader {
  readonly hops?: number
  readonly handler?: string
  readonly batches?: readonly BatchPlace[]
  readonly parent?: string
  readonly failed?: string
}

/** Headers come from anywhere: a value of the wrong shape counts as absent. */
export function envelopeOf({ headers }: Pick<RecordedEvent, 'headers'>): Envelope {
  const header = headers.workflow
  if (typeof header !== 'object' || header === null) return plain
  const { hops, handler, batches, parent, failed } = header as Record<string, unknown>
  return {
    hops: Number.isSafeInteger(hops) && (hops as number) >= 0 ? (hops as number) : 0,
    handler: text(handler),
    batches: Array.isArray(batches) ? batches.filter(isPlace) : [],
    parent: text(parent),
    failed: text(failed),
  }
}

export function headerOf(envelope: Partial<Envelope>): { workflow?: EnvelopeHeader } {
  const { hops = 0, handler, batches = [], parent, failed } = envelope
  const header: EnvelopeHeader = {
    ...(hops > 0 ? { hops } : {}),
    ...(handler === undefined ? {} : { handler }),
    ...(batches.length === 0 ? {} : { batches }),
    ...(parent === undefined ? {} : { parent }),
    ...(failed === undefined ? {} : { failed }),
  }
  return Object.keys(header).length === 0 ? {} : { workflow: header }
}

const plain: Envelope = { hops: 0, handler: undefined, batches: [], parent: undefined, failed: undefined }

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
