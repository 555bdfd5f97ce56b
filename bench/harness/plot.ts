/** A plot of ratios as SVG: a dot for each comparison on a logarithmic scale, with the range of its rounds and its bar. */

export interface Plotted {
  readonly label: string
  readonly ratio: number
  readonly min: number
  readonly max: number
  /** The ratio that is to be reached. */
  readonly bar?: number | undefined
}

const [width, left, right, top, step] = [920, 440, 70, 52, 26] as const

export function plot(title: string, rows: readonly Plotted[]): string {
  const values = rows.flatMap(({ ratio, min, max, bar }) => [ratio, min, max, bar ?? 1])
  const least = Math.min(0.5, ...values)
  const most = Math.max(2, ...values)
  const height = top + rows.length * step + 34
  const x = (ratio: number): number =>
    left + ((Math.log(ratio) - Math.log(least)) / (Math.log(most) - Math.log(least))) * (width - left - right)
  const ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50].filter(tick => tick >= least && tick <= most)
  const lines = ticks.map(tick => {
    const at = x(tick).toFixed(1)
    const kind = tick === 1 ? 'one' : 'tick'
    return `<line class="${kind}" x1="${at}" y1="${top - 8}" x2="${at}" y2="${height - 28}"/>
  <text class="axis" x="${at}" y="${height - 12}" text-anchor="middle">${tick}×</text>`
  })
  const marks = rows.map(({ label, ratio, min, max, bar }, at) => {
    const y = top + at * step + 8
    const kind = bar !== undefined && ratio < bar ? 'below' : 'reached'
    const target =
      bar === undefined
        ? ''
        : `<line class="bar" x1="${x(bar).toFixed(1)}" y1="${y - 8}" x2="${x(bar).toFixed(1)}" y2="${y + 8}"/>`
    return `<text class="label" x="${left - 14}" y="${y + 4}" text-anchor="end">${escaped(label)}</text>
  <line class="range" x1="${x(min).toFixed(1)}" y1="${y}" x2="${x(max).toFixed(1)}" y2="${y}"/>
  ${target}<circle class="${kind}" cx="${x(ratio).toFixed(1)}" cy="${y}" r="4.5"/>
  <text class="value" x="${width - right + 12}" y="${y + 4}">${ratio.toFixed(ratio < 10 ? 2 : 0)}×</text>`
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}">
  <style>
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .title { font-weight: 600; font-size: 15px }
    .axis { fill: #59636e; font-size: 11px }
    .tick { stroke: #d1d9e0 } .one { stroke: #59636e; stroke-dasharray: 3 3 }
    .range { stroke: #8c959f; stroke-width: 2 } .bar { stroke: #1f2328; stroke-width: 2 }
    .reached { fill: #1a7f37 } .below { fill: #bc4c00 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc } .axis { fill: #9198a1 } .tick { stroke: #3d444d } .one { stroke: #9198a1 }
      .bar { stroke: #f0f6fc } .reached { fill: #3fb950 } .below { fill: #db6d28 }
    }
  </style>
  <text class="title" x="16" y="24">${escaped(title)}</text>
  <text class="axis" x="${width - 16}" y="24" text-anchor="end">above 1 ours is better · line: rounds · mark: what is to be reached</text>
  ${[...lines, ...marks].join('\n  ')}
</svg>
`
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;')
}
