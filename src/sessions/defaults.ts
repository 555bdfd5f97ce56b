/**
 * Headers, causation, correlation and user of all writes of a session: the store's, overridden by the session's, then
 * by the save's.
 */
import type { AppendDefaults } from '../events/append/prepare.ts'

/** Later ones win; headers are merged key by key. */
export function mergeDefaults(...given: readonly (AppendDefaults | undefined)[]): AppendDefaults {
  const merged: AppendDefaults = {}
  for (const each of given) {
    if (each === undefined) continue
    merged.correlationId = each.correlationId ?? merged.correlationId
    merged.causationId = each.causationId ?? merged.causationId
    merged.userId = each.userId ?? merged.userId
    if (each.headers !== undefined) merged.headers = { ...merged.headers, ...each.headers }
  }
  return merged
}
