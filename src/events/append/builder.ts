/** An append put together step by step; nothing happens before `send`. */

import type { EventMap, NewEvent } from '../definition.ts'
import type { AppendOptions } from './append.ts'
import type { Expected } from './prepare.ts'
import type { AppendResult } from './send.ts'

export interface AppendBuilder<M extends EventMap> {
  /** Headers of every event; each call adds to those before. */
  headers(headers: Readonly<Record<string, unknown>>): AppendBuilder<M>
  causation(causationId: string): AppendBuilder<M>
  correlation(correlationId: string): AppendBuilder<M>
  user(userId: string): AppendBuilder<M>
  expected(expected: Expected): AppendBuilder<M>
  idempotencyKey(key: string, onRepeat?: 'return' | 'error'): AppendBuilder<M>
  allowArchived(): AppendBuilder<M>
  push(event: NewEvent<M>): AppendBuilder<M>
  extend(events: Iterable<NewEvent<M>>): AppendBuilder<M>
  send(options?: AppendOptions): Promise<AppendResult>
}

/** Each step gives a new builder, so a half-built one can be kept and used several times. */
export function appendBuilder<M extends EventMap>(
  append: (events: readonly NewEvent<M>[], options: AppendOptions) => Promise<AppendResult>,
  events: readonly NewEvent<M>[] = [],
  options: AppendOptions = {},
): AppendBuilder<M> {
  const withOptions = (more: AppendOptions): AppendBuilder<M> => appendBuilder(append, events, { ...options, ...more })
  return {
    headers: headers => withOptions({ headers: { ...options.headers, ...headers } }),
    causation: causationId => withOptions({ causationId }),
    correlation: correlationId => withOptions({ correlationId }),
    user: userId => withOptions({ userId }),
    expected: expected => withOptions({ expected }),
    idempotencyKey: (idempotencyKey, onRepeat = 'return') => withOptions({ idempotencyKey, onRepeat }),
    allowArchived: () => withOptions({ allowArchived: true }),
    push: event => appendBuilder(append, [...events, event], options),
    extend: more => appendBuilder(append, [...events, ...more], options),
    send: more => append(events, { ...options, ...more }),
  }
}
