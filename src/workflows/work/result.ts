/** What a completed attempt is remembered to have come to: the events it emitted, the first of them by name. */
import type { Emitted } from '../emitted.ts'

export interface AttemptResult {
  readonly emitted: number
  readonly events: readonly { readonly id: string; readonly type: string }[]
}

const mostNamed = 20

export function resultOf(emitted: Pick<Emitted, 'append'> | undefined): AttemptResult | undefined {
  if (emitted?.append === undefined) return undefined
  const events: { id: string; type: string }[] = []
  for (const part of emitted.append.parts) {
    for (const { id, type } of part.events) {
      if (events.length === mostNamed) return { emitted: emitted.append.eventCount, events }
      events.push({ id, type })
    }
  }
  return { emitted: emitted.append.eventCount, events }
}
