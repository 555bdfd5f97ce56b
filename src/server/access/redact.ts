/**
 * Private data never leaves the server: paths are replaced and functions are called before an answer is written, also in
 * the live feed. A function that throws hides the whole value.
 */
import { InvalidOption } from '../../core/errors.ts'
import type { RecordedEvent } from '../../events/definition.ts'

export interface RedactOptions {
  /** Fields whose values are hidden, in events and documents: `data.card`, `headers.ip`; `*` stands for each item. */
  paths?: readonly string[] | undefined
  events?: ((event: RecordedEvent) => RecordedEvent) | undefined
  documents?: ((data: unknown, collection: string) => unknown) | undefined
  errors?: ((error: unknown) => unknown) | undefined
}

export interface Redaction {
  event<E extends RecordedEvent>(event: E): E
  /** The body of a document. */
  document(data: unknown, collection: string): unknown
  error<T>(error: T): T
}

export const hidden = '[hidden]'

export function openRedaction(options: RedactOptions = {}): Redaction {
  const paths = (options.paths ?? []).map(path => path.split('.'))
  for (const [first] of paths)
    if (first !== 'data' && first !== 'headers')
      throw new InvalidOption({
        option: 'redact.paths',
        reason: `A path of "redact" must begin with "data." or "headers.", not with "${first}".`,
      })
  const { events, documents, errors } = options
  return {
    event(event) {
      const shown = paths.reduce((value, path) => hide(value, path), event as unknown)
      return (
        events === undefined
          ? shown
          : orHidden(() => events(shown as RecordedEvent), { ...event, data: hidden, headers: {} })
      ) as typeof event
    },
    document(data, collection) {
      const shown = paths.reduce((value, path) => hide(value, path), { data } as unknown) as { data: unknown }
      return documents === undefined ? shown.data : orHidden(() => documents(shown.data, collection), hidden)
    },
    error: error =>
      error === undefined || errors === undefined
        ? error
        : (orHidden(() => errors(error), { name: 'Error', message: hidden }) as typeof error),
  }
}

function orHidden(redact: () => unknown, otherwise: unknown): unknown {
  try {
    return redact()
  } catch {
    return otherwise
  }
}

/** A copy in which the value at the path is hidden; the same value if there is none. */
function hide(value: unknown, [key, ...rest]: readonly string[]): unknown {
  if (key === undefined) return value === undefined ? undefined : hidden
  if (Array.isArray(value)) {
    const inner = key === '*' ? rest : [key, ...rest]
    return value.map(each => hide(each, inner))
  }
  if (typeof value !== 'object' || value === null) return value
  const fields = value as Record<string, unknown>
  if (key === '*') return Object.fromEntries(Object.entries(fields).map(([name, each]) => [name, hide(each, rest)]))
  return Object.hasOwn(fields, key) ? { ...fields, [key]: hide(fields[key], rest) } : value
}
