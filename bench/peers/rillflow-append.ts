/** Ours: `store.events.append` with default options on the full schema. */

import type { Store } from '../harness/rillflow.ts'
import type { Appender } from '../rigs/appender.ts'

export const storeTables = ['rillflow.events', 'rillflow.streams', 'rillflow.idempotency_keys']

export function storeAppender(store: Store): Appender {
  return {
    tables: storeTables,
    append: (stream, version, events) => store.events.append(stream, events, { expected: version }),
    [Symbol.asyncDispose]: () => store.close(),
  }
}
