/** The slider of a replay: plays the activity of a workflow as it happened, faster. */
import { useEffect, useState } from 'preact/hooks'
import { clockTime, milliseconds } from '../../parts/format.ts'
import { Button, Choose } from '../../parts/parts.tsx'
import type { Line } from './replay.ts'

const speeds = ['1', '10', '100'] as const
/** Idle time is not waited for. */
const maxWaitMs = 800

export function ReplayBar({
  lines,
  moment,
  onMove,
}: {
  lines: readonly Line[]
  moment: number
  onMove: (moment: number) => void
}) {
  const [isPlaying, setPlaying] = useState(true)
  const [speed, setSpeed] = useState<(typeof speeds)[number]>('1')
  const now = lines[moment - 1]
  const next = lines[moment]
  useEffect(() => {
    if (!isPlaying || now === undefined || next === undefined) return
    const wait = Math.min(maxWaitMs, (Date.parse(next.at) - Date.parse(now.at)) / Number(speed))
    const timer = setTimeout(() => onMove(moment + 1), Math.max(16, wait))
    return () => clearTimeout(timer)
  }, [isPlaying, moment, speed, now, next, onMove])
  const isAtEnd = moment >= lines.length
  return (
    <section class="scrub" aria-label="Replay">
      <span class="actions">
        <Button icon="left" label="Line before" onClick={() => onMove(Math.max(1, moment - 1))} />
        <Button
          icon={isPlaying && !isAtEnd ? 'pause' : 'play'}
          label={isPlaying && !isAtEnd ? 'Pause the replay' : 'Play'}
          onClick={() => {
            if (isAtEnd) onMove(1)
            setPlaying(isAtEnd || !isPlaying)
          }}
        />
        <Button icon="right" label="Next line" onClick={() => onMove(Math.min(lines.length, moment + 1))} />
      </span>
      <div class="scrub-line">
        <input
          type="range"
          min="1"
          max={lines.length}
          value={moment}
          aria-label="Moment"
          onInput={event => onMove(Number(event.currentTarget.value))}
        />
        <span class="mono faint">
          {now === undefined
            ? ''
            : `${clockTime(now.at)}${milliseconds(now.at)} · ${now.handler} ${now.kind}${now.outcome === undefined ? '' : `, ${now.outcome}`}`}
        </span>
      </div>
      <Choose
        label="Speed"
        value={speed}
        choices={speeds.map(value => ({ value, label: `×${value}` }))}
        onChoose={setSpeed}
      />
    </section>
  )
}
