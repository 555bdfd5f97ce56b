/**
 * A projection of single streams as an aggregate: what it keeps is the state, as far as it has come, and the events after
 * that are folded by the projection's own code. So it is the same whether the projection is inline, async or live.
 *
 *     const Order = aggregate('order', { projection: orders, decide: (command, order) => … })
 */
import { InvalidOption } from '../core/errors.ts'
import type { Executor } from '../database/database.ts'
import type { RecordedEvent } from '../events/definition.ts'
import { toRecordedEvent } from '../events/event.ts'
import type { Log } from '../events/log.ts'
import type { AnyEvent, Decider } from './decider.ts'

/** What a document projection, or a live one, looks like from here. */
export interface FoldingProjection<Doc> {
  /** Never there at run time: it carries the type. */
  readonly '~document'?: Doc
  readonly name: string
  readonly filter: { readonly types?: readonly string[] | undefined }
  readonly fold: ((document: unknown, event: RecordedEvent) => unknown) | undefined
  /** Reads the document of a stream as it is kept now; undefined where none is. */
  readonly kept?: ReadKept | undefined
}

export type ReadKept = (
  log: Log,
  executor: Executor,
  stream: string,
) => Promise<{ readonly state: unknown; readonly version: number } | undefined>

/** Its state is the document, or null where there is none. */
export function deciderOfProjection(
  projection: FoldingProjection<unknown>,
  decide: Decider<unknown, unknown>['decide'],
): Decider<unknown, unknown> {
  const { name, filter, fold } = projection
  if (typeof fold !== 'function')
    throw new InvalidOption({ option: 'projection', reason: `"${name}" does not fold single streams` })
  const types = filter.types === undefined ? undefined : new Set(filter.types)
  return {
    initial: () => null,
    evolve: (document, event: AnyEvent) =>
      types === undefined || types.has(event.type)
        ? (fold(document ?? undefined, event as RecordedEvent) ?? null)
        : document,
    decide,
  }
}

/** A staged event as the code of a projection, which is written for stored ones, expects it. */
export function provisional(event: AnyEvent, stream: string, version: number, createdAt: Date): RecordedEvent {
  const { type, data, id = '', schemaVersion = 1, headers = {}, correlationId = id, causationId, userId } = event
  const place = [0, stream, version, id, type, schemaVersion, data, headers] as const
  return toRecordedEvent(...place, correlationId, causationId, userId, createdAt)
}
