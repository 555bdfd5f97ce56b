/**
 * Metrics in the text format of Prometheus (version 0.0.4): families one after the other, each under its HELP and TYPE.
 * Sources are merged: a metric appears once, with the series of all sources.
 */
import { type Family, gauges, type Sample } from './metrics.ts'

export const contentType = 'text/plain; version=0.0.4; charset=utf-8'

/** Where metrics come from: a store, or one tenant of it. */
export interface MetricSource {
  readonly tenant?: string | undefined
  readonly families: readonly Family[]
}

/**
 * At most `maxSeries` series of a metric are shown; `series_dropped` has the number of the others. The buckets of a
 * histogram are one series.
 */
export function renderMetrics(sources: readonly MetricSource[], maxSeries = 1000): string {
  const families = new Map<string, Family & { readonly samples: Sample[] }>()
  for (const { tenant, families: own } of sources) {
    for (const family of own) {
      const merged = families.get(family.name) ?? { ...family, samples: [] }
      families.set(family.name, merged)
      for (const sample of family.samples)
        merged.samples.push(tenant === undefined ? sample : { ...sample, labels: { tenant, ...sample.labels } })
    }
  }
  const dropped: Sample[] = []
  const shown = [...families.values()].map(family => {
    const samples = firstSeries(family.samples, maxSeries)
    const left = countSeries(family.samples) - countSeries(samples)
    if (left > 0) dropped.push({ labels: { metric: `rillflow_${family.name}` }, value: left })
    return { ...family, samples }
  })
  shown.push({ name: 'series_dropped', type: 'gauge', help: gauges.series_dropped.help, samples: dropped })
  return shown.map(renderFamily).join('')
}

function firstSeries(samples: readonly Sample[], maxSeries: number): Sample[] {
  const series = new Set<string>()
  return samples.filter(sample => {
    const key = seriesKey(sample)
    if (!series.has(key) && series.size >= maxSeries) return false
    series.add(key)
    return true
  })
}

function countSeries(samples: readonly Sample[]): number {
  return new Set(samples.map(seriesKey)).size
}

function seriesKey({ labels: { le: _, ...labels } }: Sample): string {
  return JSON.stringify(labels)
}

function renderFamily({ name, type, help, samples }: Family): string {
  const full = `rillflow_${name}`
  const lines = samples.map(
    sample => `${full}${sample.suffix ?? ''}${labelsText(sample.labels)} ${numberText(sample.value)}\n`,
  )
  return `# HELP ${full} ${escapeHelp(help)}\n# TYPE ${full} ${type}\n${lines.join('')}`
}

function labelsText(labels: Sample['labels']): string {
  const pairs = Object.entries(labels).map(([label, value]) => `${label}="${escapeLabel(value)}"`)
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`
}

function escapeHelp(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}

/** Names can contain anything: a line break or a quote in one must not begin another series. */
function escapeLabel(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}

function numberText(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf'
  return value === Number.NEGATIVE_INFINITY ? '-Inf' : String(value)
}
