/**
 * The timeline of a workflow: for each execution the spans in which it was queued, ran, waited or was backing off. Idle
 * time longer than a tenth of the whole is folded, so that a burst and an hour of waiting fit into one picture.
 */
import type { Line } from './replay.ts'

export type SpanKind = 'queued' | 'run' | 'done' | 'fail' | 'back' | 'wait'

export interface Span {
  readonly kind: SpanKind
  readonly from: number
  readonly to: number
}

export interface Track {
  readonly executionId: string
  readonly handler: string
  readonly spans: readonly Span[]
  readonly attempts: number
  readonly last: Line
}

export interface Scale {
  /** From a time to a fraction of the width. */
  at(time: number): number
  readonly cuts: readonly { readonly from: number; readonly to: number; readonly ms: number }[]
  readonly start: number
  readonly end: number
}

export function tracksOf(lines: readonly Line[], now: number): Track[] {
  const byExecution = new Map<string, Line[]>()
  for (const line of lines) byExecution.set(line.executionId, [...(byExecution.get(line.executionId) ?? []), line])
  return [...byExecution.values()].map(own => ({
    executionId: own[0]!.executionId,
    handler: own[0]!.handler,
    spans: spansOf(own, now),
    attempts: Math.max(...own.map(line => line.attempt)),
    last: own.at(-1)!,
  }))
}

/** Each line ends the span that the line before it began. */
function spansOf(lines: readonly Line[], now: number): Span[] {
  const spans: Span[] = []
  let since = Date.parse(lines[0]!.at)
  let open = afterLine(lines[0]!)
  for (const line of lines.slice(1)) {
    const at = Date.parse(line.at)
    const isEnd = line.kind === 'completed' || line.kind === 'failed' || line.kind === 'suspended'
    const began = open === 'run' || line.runningMs === undefined ? since : Math.max(since, at - line.runningMs)
    if (isEnd && open !== 'run' && began > since) spans.push({ kind: open ?? 'queued', from: since, to: began })
    if (isEnd)
      spans.push({
        kind: line.kind === 'failed' ? 'fail' : line.kind === 'completed' ? 'done' : 'run',
        from: began,
        to: at,
      })
    else if (open !== undefined) spans.push({ kind: open, from: since, to: at })
    since = at
    open = afterLine(line)
  }
  if (open !== undefined) spans.push({ kind: open, from: since, to: now })
  return spans.filter(({ from, to }) => to >= from)
}

function afterLine({ kind, outcome }: Line): SpanKind | undefined {
  if (kind === 'started') return 'run'
  if (kind === 'suspended' || kind === 'parked') return 'wait'
  if (kind === 'released' || kind === 'dispatched') return 'queued'
  if (kind === 'failed') return outcome === 'retry' || outcome === 'timeout' ? 'back' : undefined
  return undefined
}

/** `isFolded`: whether idle time is cut. */
export function scaleOf(tracks: readonly Track[], isFolded: boolean): Scale {
  const spans = tracks.flatMap(track => track.spans)
  const start = Math.min(...spans.map(({ from }) => from))
  const end = Math.max(start + 1, ...spans.map(({ to }) => to))
  const busy = spans
    .filter(({ kind }) => kind === 'run' || kind === 'done' || kind === 'fail' || kind === 'queued')
    .sort((a, b) => a.from - b.from)
  const idle: { from: number; to: number }[] = []
  let reached = start
  for (const { from, to } of busy) {
    if (from > reached) idle.push({ from: reached, to: from })
    reached = Math.max(reached, to)
  }
  if (end > reached) idle.push({ from: reached, to: end })
  const cut = isFolded ? idle.filter(({ from, to }) => to - from > (end - start) / 10 && to - from > 2000) : []
  const cutMs = cut.reduce((sum, { from, to }) => sum + to - from, 0)
  // A cut is as wide as a twelfth of what is left.
  const gap = cut.length === 0 ? 0 : Math.max((end - start - cutMs) / 12, 1)
  const whole = end - start - cutMs + gap * cut.length
  const at = (time: number): number => {
    let shown = time - start
    for (const { from, to } of cut) {
      if (time <= from) continue
      const inside = Math.min(time, to) - from
      shown -= inside - (inside / (to - from)) * gap
    }
    return Math.min(1, Math.max(0, shown / whole))
  }
  return { at, start, end, cuts: cut.map(({ from, to }) => ({ from: at(from), to: at(to), ms: to - from })) }
}

/** Round steps for the time axis: at most six, none inside a cut. */
export function marksOf({ start, end, cuts, at }: Scale): { readonly x: number; readonly ms: number }[] {
  const visible = end - start - cuts.reduce((sum, { ms }) => sum + ms, 0)
  const sizes = [
    10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000,
    86_400_000,
  ]
  const step = sizes.find(size => visible / size <= 6) ?? 604_800_000
  const marks: { x: number; ms: number }[] = []
  for (let ms = 0; start + ms <= end && marks.length < 400; ms += step) {
    const x = at(start + ms)
    const isCut = cuts.some(cut => x > cut.from && x < cut.to)
    if (!isCut && (marks.at(-1) === undefined || x - marks.at(-1)!.x > 0.07)) marks.push({ x, ms })
  }
  return marks
}
