/**
 * An aggregate whose state is the document of a projection: the stored document, and the later events of the stream
 * folded by the projection's own code. So it is the same whether the projection is inline, async or live.
 *
 *     const Order = defineProjectedAggregate('order', { projection: orders, decide: (command, order) => … })
 *
 * The state is null where there is no document: before the first event, and after one that deletes it.
 */
import { checkDefinition } from '../core/definition.ts'
import { InvalidOption } from '../core/errors.ts'
import { refuseUnknownOptions } from '../core/options.ts'
import type { Executor } from '../database/database.ts'
import type { EventMap, NewEventIn, RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { toRecordedEvent } from '../events/read/rows.ts'
import { type Aggregate, type AggregateOptions, type AnyEvent, makeAggregate } from './aggregate.ts'

/** The parts of a document projection that an aggregate uses. */
export interface FoldingProjection<Doc, M extends EventMap> {
  readonly '~document'?: Doc | undefined
  readonly '~events'?: ((map: M) => void) | undefined
  readonly name: string
  readonly filter: { readonly types?: readonly string[] | undefined }
  /** Folds the events of one stream; undefined for a projection whose documents belong to many. */
  readonly fold: ((document: unknown, event: RecordedEvent) => unknown) | undefined
  readonly readStored?: ReadStored | undefined
}

/** Reads the document of a stream as it is stored now; undefined where there is none. */
export type ReadStored = (
  log: Log,
  executor: Executor,
  stream: string,
) => Promise<{ readonly state: unknown; readonly version: number } | undefined>

export interface ProjectedAggregateDefinition<Doc, M extends EventMap, Command>
  extends Pick<AggregateOptions<NoInfer<Doc> | null>, 'validate'> {
  readonly projection: FoldingProjection<Doc, M>
  /** Returns the events that follow from a command, `[]` for none. It throws to refuse the command. */
  readonly decide?:
    | ((command: Command, document: NoInfer<Doc> | null) => NewEventIn<NoInfer<M>> | readonly NewEventIn<NoInfer<M>>[])
    | undefined
}

/**
 * Defines an aggregate whose state is the document of a projection, so that both are folded by the same code.
 *
 * @example
 * ```ts
 * const OrderOfDocument = defineProjectedAggregate('order', {
 *   projection: orders,
 *   decide: (command: { carrier: string }, order) =>
 *     order === null ? [] : { type: 'OrderShipped', data: { carrier: command.carrier } },
 * })
 * ```
 */
export function defineProjectedAggregate<Doc, M extends EventMap, Command = never>(
  name: string,
  definition: ProjectedAggregateDefinition<Doc, M, Command>,
): Aggregate<Doc | null, Command, M> {
  checkDefinition('defineProjectedAggregate', name, definition)
  refuseUnknownOptions(`Aggregate "${name}"`, definition, ['projection', 'decide', 'validate'])
  const { projection, decide, ...options } = definition
  const { filter, fold, readStored } = projection
  if (typeof fold !== 'function')
    throw new InvalidOption({
      option: 'projection',
      reason: `Aggregate "${name}" cannot use projection "${projection.name}", which does not fold single streams. Use a document projection without "identity".`,
    })
  const types = filter.types === undefined ? undefined : new Set(filter.types)
  return makeAggregate(name, options, {
    initial: () => null,
    evolve: (document, event) =>
      types === undefined || types.has(event.type)
        ? (fold(document ?? undefined, event as RecordedEvent) ?? null)
        : document,
    decide: decide as Aggregate['decide'],
    ...{ snapshotForm: 'none' as const, readStored, isProjected: true },
  })
}

/** A staged event as the code of a projection, which is written for stored ones, expects it. */
export function provisional(event: AnyEvent, stream: string, version: number, createdAt: Date): RecordedEvent {
  const { type, data, id = '', schemaVersion = 1, headers = {}, correlationId = id, causationId, userId } = event
  const place = [0, stream, version, id, type, schemaVersion, data, headers] as const
  return toRecordedEvent(...place, correlationId, causationId, userId, createdAt)
}
