/**
 * The events of an append as readers of the log get them, made from the append and its outcome: a follower that has
 * everything before them needs no read.
 */
import { parseStored } from '../../core/stored-json.ts'
import type { Committed } from '../order/wake.ts'
import type { Append, Outcome } from './send.ts'

/** Larger events are read, and not kept in memory. */
const maxBytes = 32 * 1024

/**
 * Undefined if the outcome does not say all of them: of several events of one stream it has only the position of the
 * last.
 */
export function committedBy(append: Append, { kind, versions, positions, at }: Outcome): Committed | undefined {
  const { parts } = append
  if (kind !== 'appended' || at === undefined) return undefined
  if (parts.some(({ events }) => events.length > 1 || events[0]!.bytes > maxBytes)) return undefined
  return () =>
    parts.map(({ stream, events }, part) => {
      const { id, type, schemaVersion, data, headers, correlationId, causationId, userId, bytes } = events[0]!
      const position = positions[part]!
      const stored = [parseStored(data), headers === undefined ? null : parseStored(headers)]
      const about = [position, stream, versions[part]!, id, type, schemaVersion]
      return { position, row: [...about, ...stored, correlationId, causationId ?? null, userId ?? null, at], bytes }
    })
}
