/** Lines over time. uPlot is loaded with the first chart, into a box of its size, so that nothing moves. */
import { useEffect, useRef, useState } from 'preact/hooks'
import type uPlot from 'uplot'
import { taste } from '../shell/taste.ts'
import { clockTime, rate } from './format.ts'

export interface Series {
  readonly name: string
  readonly tone: '1' | '2' | '3' | '4' | 'bad' | 'warn'
  readonly values: readonly (number | null)[]
}

interface ChartProps {
  title: string
  /** Times in milliseconds, the oldest first. */
  times: readonly number[]
  series: readonly Series[]
  unit?: string
  height?: number
  /** How far back the time goes; the end is now. Default: as far as there is data. */
  spanMs?: number | undefined
}

export function Chart({ title, times, series, unit = '', height = 136, spanMs }: ChartProps) {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const [pointed, setPointed] = useState<number | undefined>(undefined)
  const { theme } = taste.value
  const shape = `${theme} ${series.map(({ name, tone }) => `${name}:${tone}`).join()} ${height} ${spanMs}`

  useEffect(() => {
    let isOver = false
    const box = place.current
    let stop = (): void => {}
    import('uplot')
      .then(({ default: Plot }) => {
        if (isOver || box === null) return
        const made = new Plot(optionsOf(box, series, { height, spanMs }, setPointed), dataOf(times, series), box)
        plot.current = made
        const resized = new ResizeObserver(() => made.setSize({ width: box.clientWidth, height }))
        resized.observe(box)
        const scheme = matchMedia('(prefers-color-scheme: dark)')
        const redraw = (): void => made.redraw(true, true)
        scheme.addEventListener('change', redraw)
        stop = () => {
          resized.disconnect()
          scheme.removeEventListener('change', redraw)
          made.destroy()
        }
      })
      .catch(() => {})
    return () => {
      isOver = true
      plot.current = undefined
      stop()
    }
  }, [shape])

  useEffect(() => {
    plot.current?.setData(dataOf(times, series))
  }, [times, series])

  const at = pointed ?? times.length - 1
  const spoken = series.map(each => `${each.name} ${valueText(each.values[times.length - 1])}${unit}`).join(', ')
  return (
    <figure class="chart">
      <figcaption>
        <h2>{title}</h2>
        {pointed !== undefined && times[at] !== undefined && <span class="faint mini">{clockTime(times[at])}</span>}
        <span class="keys">
          {series.map(each => (
            <span class="key" key={each.name}>
              <svg viewBox="0 0 12 8" aria-hidden="true">
                <path class={`ln ln-${each.tone}`} d="M0 4h12" />
              </svg>
              {each.name}
              <b class="key-value">{valueText(each.values[at])}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div class={`plot plot-${height}`} ref={place} role="img" aria-label={`${title}: now ${spoken || 'no data'}`}>
        {!series.some(each => each.values.filter(value => value !== null).length > 1) && (
          <span class="plot-empty">Measured from now on, a point every few seconds.</span>
        )}
      </div>
    </figure>
  )
}

function valueText(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : rate(value)
}

function dataOf(times: readonly number[], series: readonly Series[]): uPlot.AlignedData {
  return [times.map(at => at / 1000), ...series.map(({ values }) => [...values])] as uPlot.AlignedData
}

/** Canvas needs colours as they are, and `light-dark()` is resolved only on an element. */
function colour(box: HTMLElement, name: string): string {
  const probe = document.createElement('i')
  probe.className = `probe-${name}`
  box.append(probe)
  const found = getComputedStyle(probe).color
  probe.remove()
  return found
}

function optionsOf(
  box: HTMLElement,
  series: readonly Series[],
  { height, spanMs }: { height: number; spanMs: number | undefined },
  onPoint: (index: number | undefined) => void,
): uPlot.Options {
  const text = (): string => colour(box, 'text')
  const grid = (): string => colour(box, 'grid')
  const font = `11px ${getComputedStyle(document.body).fontFamily}`
  const isAlone = series.length === 1
  return {
    width: box.clientWidth,
    height,
    padding: [8, 18, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      ...(spanMs !== undefined && {
        x: { range: () => [(Date.now() - spanMs) / 1000, Date.now() / 1000] as [number, number] },
      }),
      y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high * 1.12)] },
    },
    axes: [
      {
        stroke: text,
        font,
        grid: { show: false },
        ticks: { show: false },
        size: 22,
        space: 84,
        incrs: [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 21_600, 43_200],
        values: (_, splits) => splits.map(at => clockTime(at * 1000)),
      },
      {
        stroke: text,
        font,
        grid: { stroke: grid, width: 1 },
        ticks: { show: false },
        size: 44,
        space: 34,
        values: (_, splits) => splits.map(value => rate(value)),
      },
    ],
    series: [
      {},
      ...series.map(({ name, tone }) => ({
        label: name,
        stroke: () => colour(box, tone),
        width: 1.5,
        points: { show: false },
        spanGaps: true,
        ...(isAlone && { fill: () => faint(colour(box, tone)) }),
      })),
    ],
    hooks: { setCursor: [plot => onPoint(plot.cursor.idx ?? undefined)] },
  }
}

function faint(colour: string): string {
  const parts = /rgb\((\d+),? (\d+),? (\d+)\)/.exec(colour)
  return parts === null ? 'transparent' : `rgba(${parts[1]}, ${parts[2]}, ${parts[3]}, 0.12)`
}
