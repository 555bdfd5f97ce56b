/** The recorded steps of an execution. */
import { useReading } from '../../api/reading.ts'
import { OneLine } from '../../json/view.tsx'
import { time } from '../../parts/format.ts'
import { Shape } from '../../parts/icon.tsx'

export function Steps({ workflow, executionId }: { workflow: string; executionId: string }) {
  const steps = useReading('GET /workflows/:id/steps', { parameters: { id: workflow }, everyMs: 5000 })
  const own = (steps.data?.items ?? []).filter(each => each.executionId === executionId)
  if (own.length === 0) return null
  return (
    <div class="sec">
      <h3>Steps</h3>
      <ul class="steps-list">
        {own.map(each => (
          <li key={each.ordinal + each.name}>
            {/failed/.test(each.state) ? (
              <Shape name="failed" tone="tone-bad" />
            ) : each.state === 'open' || each.state === 'waiting' ? (
              <Shape name="waiting" tone="tone-wait" />
            ) : (
              <Shape name="done" tone="tone-good" />
            )}
            <span class="cut">
              {each.name}{' '}
              <span class="faint">
                {each.isCut === true ? (
                  '→ too large to show'
                ) : each.result === undefined || each.result === null ? (
                  each.kind
                ) : (
                  <>
                    → <OneLine value={each.result} />
                  </>
                )}
              </span>
            </span>
            <span class="mono faint">{time(each.at)}</span>
          </li>
        ))}
      </ul>
    </div>
  )
}
