import { pageUrl } from '../../api/place.ts'
import { Shape } from '../../parts/icon.tsx'
import type { Status } from './workflow.tsx'

/** Failures for good come first, with the way to their dead letters. */
export function FailureNotice({ status: { correlationId, lastFailure, deadLetters } }: { status: Status }) {
  if (deadLetters === 0 || lastFailure === undefined) return null
  return (
    <div class="notice bad">
      <Shape name="failed" tone="tone-bad" />
      <div class="grow">
        <b class="strong">{lastFailure.handler} failed for good</b>
        <p>{lastFailure.error.message}</p>
      </div>
      <a class="btn" href={pageUrl('/dead-letters', { workflow: correlationId })}>
        {deadLetters === 1 ? 'Open its dead letter' : `Open its ${deadLetters} dead letters`}
      </a>
    </div>
  )
}
