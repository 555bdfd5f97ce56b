/** The actions on a consumer: pause, rehearse, rebuild, reset, and applying a projection within each append or after it. */
import { refusedFor } from '../api/api.ts'
import { ask } from '../parts/dialog.tsx'
import { quantity } from '../parts/format.ts'
import { Button } from '../parts/parts.tsx'
import { act } from '../shell/act.ts'
import { type Consumer, PauseButton, resetConsumer } from './consumer-look.tsx'

export function ProjectionActions({ consumer, onChange }: { consumer: Consumer; onChange: () => void }) {
  const { name } = consumer
  const isProjection = consumer.kind === 'projection'
  const interrupted = consumer.rebuild?.isRunning === false ? consumer.rebuild : undefined
  const rebuild = async (restart = false): Promise<void> => {
    const isContinued = interrupted !== undefined && !restart
    const answer = await ask({
      title: isContinued ? `Continue the rebuild of ${name}?` : `Rebuild ${name}?`,
      body: isContinued
        ? `It was interrupted at #${interrupted.position} of ${quantity(consumer.head)} positions. What it has filled is used.`
        : `A new read model is filled from ${quantity(consumer.head)} positions of the log, and takes the place of the present one when it is complete. Until then readers see the present one.`,
      verb: isContinued ? 'Continue it' : `Rebuild ${name}`,
      command: `rillflow projections rebuild ${name}${restart ? ' --restart' : ''}`,
      ...(isContinued && { instead: { label: 'Begin anew…', run: () => void rebuild(true) } }),
    })
    if (answer !== undefined)
      await act('POST /projections/:name/rebuild', {
        parameters: { name },
        body: { restart },
        done: `The rebuild of ${name} ${isContinued ? 'continues' : 'has begun'}.`,
        after: onChange,
      })
  }
  const refused = consumer.isRegistered ? refusedFor('admin') : 'this process does not have its code'
  const isInline = consumer.state === 'inline'
  const change = async (): Promise<void> => {
    const to = isInline ? 'async' : 'inline'
    const answer = await ask({
      title: isInline ? `Apply ${name} soon after each append?` : `Apply ${name} within each append?`,
      body: isInline
        ? 'Appends no longer wait for it. Readers see its rows a moment after the events.'
        : 'Each append of its types then waits for it, and fails when it fails. Writers pause only for the last step. A process without its code can no longer append these types.',
      verb: `Make it ${to}`,
      command: `rillflow projections switch ${name} --lifecycle ${to}`,
    })
    if (answer !== undefined)
      await act('POST /projections/:name/lifecycle', {
        parameters: { name },
        body: { lifecycle: to },
        done: `${name} is ${to}.`,
        after: onChange,
      })
  }
  const rehearse = (): void =>
    void act('POST /projections/:name/rehearse', {
      parameters: { name },
      done: `The rehearsal of ${name} has begun. Nothing changes.`,
      after: onChange,
    })
  return (
    <>
      <PauseButton consumer={consumer} onChange={onChange} />
      {isProjection && (
        <Button refused={isInline ? refusedFor('admin') : refused} onClick={() => void change()}>
          {isInline ? 'Make async…' : 'Make inline…'}
        </Button>
      )}
      {isProjection && (
        <Button refused={refused} onClick={rehearse}>
          Rehearse
        </Button>
      )}
      {isProjection && (
        <Button icon="retry" refused={refused} onClick={() => void rebuild()}>
          {interrupted === undefined ? 'Rebuild…' : 'Continue the rebuild…'}
        </Button>
      )}
      <Button
        kind="danger"
        refused={consumer.state === 'inline' ? 'it runs with each append' : refusedFor('admin')}
        onClick={() => void resetConsumer(consumer, onChange, isProjection ? () => void rebuild() : undefined)}
      >
        Reset…
      </Button>
    </>
  )
}
