/** Small lines and bars, drawn as SVG: themed by classes, and part of the first load. */

/** The values of five minutes, the newest at the right with a dot. */
export function Spark({ values, tone = '1' }: { values: readonly number[]; tone?: '1' | '4' | 'bad' }) {
  if (values.length < 2) return <svg class="spark" viewBox="0 0 96 28" aria-hidden="true" />
  const points = scale(values, 93, 4, 26)
  const line = `M${points.map(([x, y]) => `${x} ${y}`).join('L')}`
  const [x, y] = points.at(-1)!
  return (
    <svg class="spark" viewBox="0 0 96 28" preserveAspectRatio="none" aria-hidden="true">
      <path class={`ar-${tone}`} d={`${line}L${x} 27L0 27Z`} />
      <path class={`ln ln-${tone}`} vector-effect="non-scaling-stroke" d={line} />
      <path class={`ln ln-${tone} endpoint`} vector-effect="non-scaling-stroke" d={`M${x} ${y}h.01`} />
    </svg>
  )
}

function scale(values: readonly number[], width: number, top: number, bottom: number): [number, number][] {
  const low = Math.min(...values)
  const high = Math.max(...values)
  const isFlat = high === low
  return values.map((value, index) => {
    const x = round((index / (values.length - 1)) * width)
    const y = isFlat
      ? high === 0
        ? bottom
        : (top + bottom) / 2
      : bottom - ((value - low) / (high - low)) * (bottom - top)
    return [x, round(y)]
  })
}

/** Counts over time: small red bars for failures. */
export function Bars({ counts }: { counts: readonly number[] }) {
  const high = Math.max(1, ...counts)
  const width = 72 / Math.max(1, counts.length)
  return (
    <svg class="bars" viewBox="0 0 72 20" aria-hidden="true">
      {counts.map((count, index) => {
        const height = count === 0 ? 1 : Math.max(3, round((count / high) * 20))
        return (
          <rect
            key={index}
            class={count === 0 ? 'br-soft-rest' : 'br-bad'}
            x={round(index * width)}
            y={20 - height}
            width={round(width - 1.5)}
            height={height}
          />
        )
      })}
    </svg>
  )
}

function round(value: number): number {
  return Math.round(value * 10) / 10
}
