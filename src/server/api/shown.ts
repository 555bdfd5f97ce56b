/** Events as the API shows them in lists: one whose data is very large is shown without it. */
import type { RecordedEvent } from '../../events/definition.ts'
import type { ShownEvent } from './contract.ts'

const maxShownBytes = 64 * 1024

export function shownEvent(event: RecordedEvent): ShownEvent {
  const isLarge = sizeOf(event.data) > maxShownBytes
  return isLarge ? { ...event, data: null, isCut: true } : event
}

function sizeOf(data: unknown): number {
  return typeof data === 'object' && data !== null ? JSON.stringify(data).length : 0
}
