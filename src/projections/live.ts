/**
 * Live projections: nothing is kept, the stream is folded when it is read, so the answer is never behind.
 *
 *     const order = liveProjection('order', { events: shopEvents, initial: () => ({ total: 0 }), on: { … } })
 *     await store.projections.get(order, 'order-42')
 */
import type { EventMap, RecordedEvent, UntypedEvents } from '../events/definition.ts'
import { checkedFold, type FromInitial, type FromNothing } from './document.ts'
import { handlersOf, nameAndFilter, type Projection } from './projection.ts'

export interface LiveProjection<Doc> extends Projection {
  /** Never there at run time: it carries the type to where it is read. */
  readonly '~document'?: Doc
  readonly apply: undefined
}

type Live<Options> = Omit<Options, 'identity' | 'table' | 'version' | 'filter'>

export function liveProjection<Doc extends object, M extends EventMap = UntypedEvents>(
  name: string,
  options: Live<FromInitial<M, Doc>>,
): LiveProjection<Doc>
export function liveProjection<Doc extends object, M extends EventMap = UntypedEvents>(
  name: string,
  options: Live<FromNothing<M, Doc>>,
): LiveProjection<Doc>
export function liveProjection(
  name: string,
  options: { initial?: ((id: string) => object) | undefined; on: object },
): LiveProjection<object> {
  const handlers = handlersOf<(document: unknown, event: RecordedEvent) => unknown>(name, options.on)
  const fold = checkedFold(name, options.initial, handlers)
  return {
    ...nameAndFilter(name, {}, handlers),
    tables: [],
    apply: undefined,
    reset: undefined,
    fold: (document, event) => fold(document, event, event.stream),
  }
}
