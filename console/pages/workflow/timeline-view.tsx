/** The timeline as a drawing: queued apart from running, waits hatched, idle time folded and named. */
import { useMemo, useState } from 'preact/hooks'
import { duration } from '../../parts/format.ts'
import { ShapeAt } from '../../parts/icon.tsx'
import { Panel } from '../../parts/parts.tsx'
import { useWidth } from '../../parts/width.ts'
import { executionLook } from '../workflow-look.tsx'
import { type Line, stateAfter } from './replay.ts'
import { marksOf, type Scale, type SpanKind, scaleOf, type Track, tracksOf } from './timeline.ts'

const left = 172
const rowHeight = 30
const maxTracks = 60

interface TimelineProps {
  lines: readonly Line[]
  isOpen: boolean
  chosen: string | undefined
  /** The moment of a replay, in milliseconds. */
  cursor: number | undefined
  href: (executionId: string) => string
}

export function Timeline({ lines, isOpen, chosen, cursor, href }: TimelineProps) {
  const [isFolded, setFolded] = useState(true)
  const [place, width] = useWidth(900)
  const tracks = useMemo(() => {
    const end = isOpen ? Date.now() : Math.max(...lines.map(line => Date.parse(line.at)))
    return tracksOf(lines, end)
  }, [lines, isOpen])
  if (tracks.length === 0) return null
  const shown = tracks.slice(0, maxTracks)
  const scale = scaleOf(tracks, isFolded)
  const height = 28 + shown.length * rowHeight
  const x = (fraction: number): number => left + fraction * (width - left - 16)
  return (
    <Panel
      class="lanes"
      title="Timeline"
      end={<Keys />}
      foot={
        scale.cuts.length > 0 || !isFolded ? (
          <>
            <span>{isFolded ? 'Idle time is folded where it is marked.' : 'To scale.'}</span>
            <button type="button" class="link bare" onClick={() => setFolded(!isFolded)}>
              {isFolded ? 'Show it to scale' : 'Fold idle time'}
            </button>
          </>
        ) : tracks.length > maxTracks ? (
          `The first ${maxTracks} of ${tracks.length} executions. The list has all.`
        ) : undefined
      }
    >
      <div class="lanes-in" ref={place} tabIndex={0} role="group" aria-label="Timeline">
        <svg viewBox={`0 0 ${width} ${height}`} role="group" aria-label="What was queued, ran and waited">
          <defs>
            <pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <path class="hatch-line" d="M0 0v5" />
            </pattern>
          </defs>
          {marksOf(scale).map(({ x: at, ms }) => (
            <g key={ms}>
              <path class="grid-line" d={`M${x(at)} 20V${height}`} />
              <text x={x(at)} y="12" text-anchor="middle">
                {ms === 0 ? '0 s' : duration(ms)}
              </text>
            </g>
          ))}
          {scale.cuts.map(cut => (
            <g key={cut.from}>
              <rect class="tl-cut" x={x(cut.from)} y="20" width={x(cut.to) - x(cut.from)} height={height - 20} />
              <path class="tl-cutline" d={`M${x(cut.from)} 20V${height}M${x(cut.to)} 20V${height}`} />
              <text class="t2" x={(x(cut.from) + x(cut.to)) / 2} y="12" text-anchor="middle">
                {duration(cut.ms)} idle
              </text>
            </g>
          ))}
          {shown.map((track, index) => (
            <TrackView
              key={track.executionId}
              track={track}
              scale={scale}
              x={x}
              width={width}
              y={28 + index * rowHeight}
              isChosen={track.executionId === chosen}
              href={href(track.executionId)}
            />
          ))}
          {(cursor !== undefined || isOpen) && (
            <path class="cursor" d={`M${x(scale.at(cursor ?? scale.end))} 20V${height}`} />
          )}
        </svg>
      </div>
    </Panel>
  )
}

function TrackView({
  track,
  scale,
  x,
  width,
  y,
  isChosen,
  href,
}: {
  track: Track
  scale: Scale
  x: (fraction: number) => number
  width: number
  y: number
  isChosen: boolean
  href: string
}) {
  const look = executionLook(stateAfter(track.last))
  const end = track.spans.at(-1)
  return (
    <a href={href} class="track">
      <rect class={isChosen ? 'tl-sel' : 'tl-hit'} x="4" y={y} width={width - 8} height={rowHeight} rx="4" />
      <ShapeAt name={look.shape} tone={`sr-${look.tone}`} x={12} y={y + 9} />
      <text class="t1 t12" x="32" y={y + 19}>
        {track.handler.length > 20 ? `${track.handler.slice(0, 19)}…` : track.handler}
      </text>
      {track.spans.map(({ kind, from, to }) => {
        const start = x(scale.at(from))
        const size = Math.max(kind === 'queued' ? 0 : 2, x(scale.at(to)) - start)
        if (size < 0.5) return null
        if (kind === 'back') return <path key={from + kind} class="tl-back" d={`M${start} ${y + 15}H${start + size}`} />
        return (
          <rect
            key={from + kind}
            class={classes[kind]}
            fill={kind === 'wait' ? 'url(#hatch)' : undefined}
            x={start}
            y={y + 9}
            width={size}
            height="12"
            rx="2"
          />
        )
      })}
      {track.attempts > 1 && end !== undefined && x(scale.at(end.to)) < width - 110 && (
        <text x={x(scale.at(end.to)) + 8} y={y + 19}>
          {track.attempts} attempts
        </text>
      )}
    </a>
  )
}

const classes: Record<Exclude<SpanKind, 'back'>, string> = {
  queued: 'tl-queued',
  run: 'tl-run',
  done: 'tl-done',
  fail: 'tl-fail',
  wait: 'tl-wait',
}

function Keys() {
  const words: [SpanKind, string][] = [
    ['queued', 'queued'],
    ['run', 'running'],
    ['done', 'done'],
    ['fail', 'failed'],
    ['back', 'backing off'],
    ['wait', 'waiting'],
  ]
  return (
    <span class="keys-row">
      {words.map(([kind, word]) => (
        <span class="key" key={kind}>
          <svg viewBox="0 0 14 10" aria-hidden="true">
            {kind === 'back' ? (
              <path class="tl-back" d="M0 5h14" />
            ) : (
              <rect
                class={classes[kind]}
                fill={kind === 'wait' ? 'url(#hatch)' : undefined}
                x=".5"
                y=".5"
                width="13"
                height="9"
                rx="2"
              />
            )}
          </svg>
          {word}
        </span>
      ))}
    </span>
  )
}
