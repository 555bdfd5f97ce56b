/**
 * The progress of a long command: on a terminal a bar with the rate and the time left; elsewhere a line every few seconds, so
 * that a log shows that the command is alive. A command that ends quickly prints nothing.
 */
import { count, digits, duration } from './amount.ts'
import type { Stream, Style } from './output.ts'
import { cutTo } from './table.ts'

export interface Progress {
  /** `total` is undefined while it is not known. */
  update(done: number, total: number | undefined, unit: string): void
  /** Removes the bar. */
  end(): void
}

/** A bar appears only after this time. */
const delayMs = 500
const frameMs = 100
const lineMs = 5_000
const barWidth = 24

export function progressFor(
  stream: Stream,
  style: Style,
  { title, isSilent }: { title: string; isSilent: boolean },
): Progress {
  const startedAt = performance.now()
  let shownAt = startedAt + (stream.isTTY ? delayMs - frameMs : 0)
  let isDrawn = false
  const textOf = (done: number, total: number | undefined, unit: string): string => {
    const passedMs = performance.now() - startedAt
    const perSecond = done / (passedMs / 1000 || 1)
    const rate = `${digits(Math.round(perSecond))}/s`
    if (total === undefined) return `${title}: ${count(done, unit)}, ${rate}`
    const left = perSecond > 0 ? `, ${duration(Math.max(0, (total - done) / perSecond) * 1000)} left` : ''
    return `${title}: ${digits(done)} of ${count(total, unit)}, ${rate}${left}`
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

/** Fits into one line, because a line that wraps cannot be erased. If there is no room for both, the bar is left out. */
function fitted(style: Style, bar: string, text: string): string {
  const { width = Number.POSITIVE_INFINITY } = style
  const hasRoom = bar !== '' && barWidth + 1 + text.length < width
  return hasRoom ? bar + text : cutTo(text, width - 1, style)
}

function bar({ symbols, colour }: Style, done: number, total: number): string {
  const full = total === 0 ? barWidth : Math.min(barWidth, Math.floor((done / total) * barWidth))
  return `${colour.green(symbols.full.repeat(full))}${colour.dim(symbols.empty.repeat(barWidth - full))} `
}
