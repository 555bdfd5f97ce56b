/** Waiting for an event of the own workflow. How one finds its wait is told in `waits.ts`. */
import { InvalidOption } from '../../core/errors.ts'
import { encodeJson } from '../../core/json.ts'
import { checkName } from '../../core/name.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Attempt } from './attempt.ts'
import { checkMs } from './timers.ts'

export interface WaitOptions {
  /** What the event's data must contain, as jsonb's `@>` finds it. Default: anything. */
  match?: Readonly<Record<string, unknown>> | undefined
  /** After this long there is no event. Default: no limit. */
  timeoutMs?: number | undefined
}

export async function waitForSignal(
  attempt: Attempt,
  type: string,
  { match, timeoutMs }: WaitOptions = {},
): Promise<RecordedEvent | undefined> {
  checkName('Event type', type)
  if (timeoutMs !== undefined) checkMs('timeoutMs', timeoutMs)
  const text = match === undefined ? undefined : matchText(attempt, type, match)
  return attempt.call('wait', type, call =>
    attempt.wait(call, {
      signal: { type, match: text },
      dueAt: timeoutMs === undefined ? undefined : attempt.dueAt(call, timeoutMs),
    }),
  )
}

function matchText({ log }: Attempt, type: string, match: unknown): string {
  if (typeof match !== 'object' || match === null || Array.isArray(match))
    throw new InvalidOption({ option: 'match', reason: 'must be an object with what the data must contain' })
  return encodeJson(match, { what: type, root: 'match', maxBytes: log.maxEventBytes }).text
}
