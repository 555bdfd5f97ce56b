/** How consumers stand: projections, processors, subscriptions, snapshotters and the dispatcher alike. */

import { refusedFor } from '../api/api.ts'
import type { AnswerOf } from '../api/routes.ts'
import { ask } from '../parts/dialog.tsx'
import { duration, quantity } from '../parts/format.ts'
import { Button, type StateLook } from '../parts/parts.tsx'
import { act } from '../shell/act.ts'

export type Consumer = AnswerOf<'GET /consumers'>['items'][number]

const lateSeconds = 60

export function consumerLook(each: Consumer): StateLook {
  if (each.isPaused) return { shape: 'paused', tone: 'rest', word: 'Paused' }
  if (each.state === 'rebuilding') return { shape: 'running', tone: 'run', word: 'Rebuilding' }
  if (each.state === 'inline') return { shape: 'done', tone: 'good', word: 'With each append' }
  if (each.retryInMs !== undefined)
    return { shape: 'retrying', tone: 'warn', word: `Failing, again in ${duration(each.retryInMs)}` }
  if (each.attempts > 0) return { shape: 'failed', tone: 'bad', word: 'Failing' }
  if (each.lag > 0 && each.lease === undefined) return { shape: 'behind', tone: 'bad', word: 'Not run' }
  if (each.lagSeconds > lateSeconds) return { shape: 'behind', tone: 'warn', word: 'Behind' }
  return { shape: 'done', tone: 'good', word: 'Up to date' }
}

export function lagText(each: Consumer): string {
  if (each.state === 'inline' || each.lag === 0) return '0'
  return each.lagSeconds >= 1 ? `${quantity(each.lag)} · ${duration(each.lagSeconds * 1000)}` : quantity(each.lag)
}

export function PauseButton({
  consumer,
  onChange,
  small,
}: {
  consumer: Consumer
  onChange: () => void
  small?: boolean
}) {
  const { name, group, isPaused } = consumer
  const run = (toPause: boolean): void => {
    void act(toPause ? 'POST /consumers/:name/pause' : 'POST /consumers/:name/resume', {
      parameters: { name },
      body: group === undefined ? {} : { group },
      done: toPause ? `${name} is paused. It stays at #${consumer.checkpoint}.` : `${name} runs again.`,
      undo: { label: toPause ? 'Resume' : 'Pause', run: () => run(!toPause) },
      after: onChange,
    })
  }
  const refused = consumer.state === 'inline' ? 'it runs with each append' : refusedFor('operate')
  return (
    <Button small={small === true} icon={isPaused ? 'play' : 'pause'} refused={refused} onClick={() => run(!isPaused)}>
      {isPaused ? 'Resume' : 'Pause'}
    </Button>
  )
}

export async function resetConsumer(consumer: Consumer, onChange: () => void, onRebuild?: () => void): Promise<void> {
  const { name, group } = consumer
  const answer = await ask({
    title: `Reset ${name} to the start?`,
    body: (
      <>
        It reads {quantity(consumer.head)} positions again. Its rows are <b class="strong">not</b> emptied: increments
        would be counted twice.
        {onRebuild === undefined ? '' : ' A rebuild does both.'}
      </>
    ),
    verb: `Reset ${name}`,
    isDanger: true,
    name,
    command: `rillflow consumers reset ${name} 0`,
    ...(onRebuild !== undefined && { instead: { label: 'Rebuild instead…', run: onRebuild } }),
  })
  if (answer !== undefined)
    await act('POST /consumers/:name/reset', {
      parameters: { name },
      body: { position: 0, confirm: name, ...(group !== undefined && { group }) },
      done: `${name} begins at the start.`,
      after: onChange,
    })
}
