/**
 * How far something long has come: a bar with rate and the time that is left, on a terminal; elsewhere a line every few
 * seconds, so that a log shows that it lives. Nothing at all if it is over before anybody would wonder.
 */
import { count, digits, duration } from './amount.ts'
import type { Stream, Style } from './output.ts'
import { cutTo } from './table.ts'

export interface Progress {
  /** `total` is undefined as long as nobody knows it. */
  update(done: number, total: number | undefined, unit: string): void
  /** Takes the bar away. */
  end(): void
}

const patienceMs = 500
const frameMs = 100
const lineMs = 5_000
const barWidth = 24

export function progressFor(
  stream: Stream,
  style: Style,
  { what, isSilent }: { what: string; isSilent: boolean },
): Progress {
  const startedAt = performance.now()
  let shownAt = startedAt + (stream.isTTY ? patienceMs - frameMs : 0)
  let isDrawn = false
  const textOf = (done: number, total: number | undefined, unit: string): string => {
    const passedMs = performance.now() - startedAt
    const perSecond = done / (passedMs / 1000 || 1)
    const rate = `${digits(Math.round(perSecond))}/s`
    if (total === undefined) return `${what}: ${count(done, unit)}, ${rate}`
    const left = perSecond > 0 ? `, ${duration(Math.max(0, (total - done) / perSecond) * 1000)} left` : ''
    return `${what}: ${digits(done)} of ${count(total, unit)}, ${rate}${left}`
  }
  return {
    update(done, total, unit) {
      const now = performance.now()
      if (isSilent || now - shownAt < (stream.isTTY ? frameMs : lineMs)) return
      shownAt = now
      const text = textOf(done, total, unit)
      if (!stream.isTTY) stream.write(`${text}\n`)
      else stream.write(`\r\u001b[2K${fitted(style, total === undefined ? '' : bar(style, done, total), text)}`)
      isDrawn = true
    },
    end() {
      if (stream.isTTY && isDrawn) stream.write('\r\u001b[2K')
      isDrawn = false
    },
  }
}

/** On one line, however narrow: what has wrapped cannot be taken away again. The numbers matter more than the bar. */
function fitted(style: Style, bar: string, text: string): string {
  const { width = Number.POSITIVE_INFINITY } = style
  const isRoomy = bar !== '' && barWidth + 1 + text.length < width
  return isRoomy ? bar + text : cutTo(text, width - 1, style)
}

function bar({ symbols, colour }: Style, done: number, total: number): string {
  const full = total === 0 ? barWidth : Math.min(barWidth, Math.floor((done / total) * barWidth))
  return `${colour.green(symbols.full.repeat(full))}${colour.dim(symbols.empty.repeat(barWidth - full))} `
}
