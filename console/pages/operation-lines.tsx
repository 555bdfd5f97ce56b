/** Long work as a line with its progress; it is the server's, so it survives a reload. */
import { refusedFor } from '../api/api.ts'
import { useFeed } from '../api/live.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { duration, quantity, rate } from '../parts/format.ts'
import { Shape } from '../parts/icon.tsx'
import { Button } from '../parts/parts.tsx'
import { useThrottled } from '../parts/throttle.ts'
import { act } from '../shell/act.ts'

export type Operation = AnswerOf<'GET /operations'>['items'][number]

/** Those that run now, of one thing or of all. */
export function RunningOperations({ about }: { about?: string }) {
  const operations = useReading('GET /operations', { everyMs: 2000 })
  useFeed(['operations'], useThrottled(operations.reload, 500))
  const running = (operations.data?.items ?? []).filter(
    each => each.state === 'running' && (about === undefined || each.target === about),
  )
  return (
    <>
      {running.map(each => (
        <OperationLine key={each.id} operation={each} onChange={operations.reload} />
      ))}
    </>
  )
}

export function OperationLine({ operation, onChange }: { operation: Operation; onChange: () => void }) {
  const { done, total, perSecond, etaMs, phase } = operation
  return (
    <div class="notice run">
      <Shape name="running" tone="tone-run" />
      <div class="grow">
        <div class="prog-line">
          <b class="medium">{titleOf(operation)}</b>
          <span class="dim">
            {phase}
            {done !== undefined && ` ${quantity(done)}${total === undefined ? '' : ` of ${quantity(total)}`}`}
            {perSecond !== undefined && `, ${rate(perSecond)} per second`}
          </span>
          <span class="push dim hide-phone">{etaMs === undefined ? '' : `about ${duration(etaMs)} left`}</span>
        </div>
        <progress value={done ?? 0} max={total ?? Math.max(1, done ?? 1)}>
          {done}
        </progress>
      </div>
      <Button
        small
        refused={refusedFor('operate')}
        onClick={() =>
          void act('DELETE /operations/:id', {
            parameters: { id: operation.id },
            done: 'It is asked to stop.',
            after: onChange,
          })
        }
      >
        Stop
      </Button>
    </div>
  )
}

const titles: Record<Operation['kind'], string> = {
  ...{
    rebuild: 'Rebuild',
    rehearse: 'Rehearsal',
    repartition: 'Repartition',
    sync: 'Sync of the schema',
    upkeep: 'Upkeep',
    move: 'Move',
  },
  syncTenants: 'Sync of all tenants',
  cancelAll: 'Cancellation of workflows',
}

export function titleOf({ kind, target }: Pick<Operation, 'kind' | 'target'>): string {
  return kind === 'rebuild' || kind === 'rehearse' || kind === 'repartition' || kind === 'move'
    ? `${titles[kind]} of ${target}`
    : titles[kind]
}
