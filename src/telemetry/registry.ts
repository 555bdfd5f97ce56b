/**
 * The numbers of one store in this process. Adding to one costs an addition, or a look into a map where it is told apart by
 * a label; an observation 0.2 µs. A label has at most `mostValues` values; what comes after them is counted as `other`, so that names that keep
 * changing cannot fill the memory.
 */
import {
  buckets,
  type Counter,
  counters,
  type Family,
  type HistogramName,
  histograms,
  type Level,
  levels,
  type Sample,
} from './metrics.ts'

export interface Figures {
  /** Adds to a counter, and to that of one value of its label. */
  count(counter: Counter, by?: number, of?: string): void
  /** Adds one observation to a histogram. */
  observe(histogram: HistogramName, value: number, of?: string): void
  /** Moves a level up or down. */
  shift(level: Level, by: number, of: string): void
  /** The counters, all values of their labels together. */
  counters(): Record<Counter, number>
  families(): Family[]
}

const mostValues = 200
const other = 'other'

export function openFigures(): Figures {
  const sums = Object.fromEntries(Object.keys(counters).map(name => [name, 0])) as Record<Counter, number>
  const labelled = new Map<Counter | Level, Map<string, number>>()
  const spread = new Map<HistogramName, Map<string, Spread>>()

  const add = (to: Counter | Level, of: string, by: number): void => {
    const values = valuesOf(labelled, to)
    const value = known(values, of)
    values.set(value, (values.get(value) ?? 0) + by)
  }

  return {
    count(counter, by = 1, of) {
      sums[counter] += by
      if (of !== undefined) add(counter, of, by)
    },
    observe(histogram, value, of = '') {
      const values = valuesOf(spread, histogram)
      const name = known(values, of)
      const limits = buckets[histograms[histogram].buckets]
      const into = values.get(name) ?? { counts: limits.map(() => 0), sum: 0, count: 0 }
      values.set(name, into)
      const at = limits.findIndex(limit => value <= limit)
      if (at >= 0) into.counts[at]!++
      into.sum += value
      into.count++
    },
    shift: (level, by, of) => add(level, of, by),
    counters: () => ({ ...sums }),
    families: () => [
      ...entriesOf(counters).map(([name, { help, ...more }]): Family => {
        const values = labelled.get(name)
        const label = 'label' in more ? more.label : undefined
        return { name, type: 'counter', help, samples: labelledSamples(label, values, sums[name]) }
      }),
      ...entriesOf(levels).map(
        ([name, { help, label }]): Family => ({
          ...{ name, type: 'gauge', help },
          samples: labelledSamples(label, labelled.get(name), 0),
        }),
      ),
      ...entriesOf(histograms).map(([name, { help, buckets: by, ...more }]): Family => {
        const label = 'label' in more ? more.label : undefined
        const samples = [...(spread.get(name) ?? [])].flatMap(([value, each]) =>
          spreadSamples(label === undefined ? {} : { [label]: value }, buckets[by], each),
        )
        return { name, type: 'histogram', help, samples }
      }),
    ],
  }
}

interface Spread {
  /** By bucket, each for itself. */
  readonly counts: number[]
  sum: number
  count: number
}

function valuesOf<K, V>(all: Map<K, Map<string, V>>, name: K): Map<string, V> {
  const values = all.get(name) ?? new Map<string, V>()
  all.set(name, values)
  return values
}

function known(values: ReadonlyMap<string, unknown>, value: string): string {
  return values.has(value) || values.size < mostValues ? value : other
}

/** What has a label and has not happened yet has no series: nobody knows its values. */
function labelledSamples(
  label: string | undefined,
  values: ReadonlyMap<string, number> | undefined,
  sum: number,
): Sample[] {
  if (label === undefined) return [{ labels: {}, value: sum }]
  return [...(values ?? [])].map(([value, count]) => ({ labels: { [label]: value }, value: count }))
}

function spreadSamples(labels: Sample['labels'], limits: readonly number[], { counts, sum, count }: Spread): Sample[] {
  let below = 0
  const within = limits.map((limit, at) => {
    below += counts[at]!
    return { suffix: '_bucket', labels: { ...labels, le: String(limit) }, value: below }
  })
  return [
    ...within,
    { suffix: '_bucket', labels: { ...labels, le: '+Inf' }, value: count },
    { suffix: '_sum', labels, value: sum },
    { suffix: '_count', labels, value: count },
  ]
}

function entriesOf<T extends object>(table: T): [keyof T & string, T[keyof T]][] {
  return Object.entries(table) as [keyof T & string, T[keyof T]][]
}
