/**
 * A strict parser of the text format of Prometheus: every family once, in one piece, under its HELP and TYPE, no series
 * twice, histograms complete. Anything else throws.
 *
 *     const metrics = parseMetrics(text)
 *     metrics.value('rillflow_consumer_lag_events', { consumer: 'orders' })
 */

export interface Metrics {
  readonly families: ReadonlyMap<string, { readonly type: string; readonly help: string }>
  readonly series: readonly Series[]
  /** The value of the one series with these labels, and perhaps others; undefined if there is none. */
  value(name: string, labels?: Record<string, string>): number | undefined
}

interface Series {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

const nameRule = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/
const labelRule = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)/

export function parseMetrics(text: string): Metrics {
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  const families = new Map<string, { type: string; help: string }>()
  const series: Series[] = []
  let current: { name: string; help: string; type?: string } | undefined
  for (const line of text.slice(0, -1).split('\n')) {
    const help = /^# HELP (\S+) (.+)$/.exec(line)
    const type = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line)
    if (help !== null) {
      if (!nameRule.test(help[1]!) || families.has(help[1]!)) throw new Error(`not a new family: ${line}`)
      current = { name: help[1]!, help: help[2]! }
    } else if (type !== null) {
      if (current?.name !== type[1] || current?.type !== undefined) throw new Error(`not under its HELP: ${line}`)
      current!.type = type[2]!
      families.set(current!.name, { type: type[2]!, help: current!.help })
    } else series.push(parseSeries(line, current))
  }
  const keys = series.map(({ name, labels }) => `${name} ${JSON.stringify(Object.entries(labels).sort())}`)
  const twice = keys.find((key, at) => keys.indexOf(key) !== at)
  if (twice !== undefined) throw new Error(`twice: ${twice}`)
  for (const [name, { type }] of families) if (type === 'histogram') checkHistogram(name, series)
  const value = (name: string, labels: Record<string, string> = {}): number | undefined => {
    const found = series.filter(
      each => each.name === name && Object.entries(labels).every(([label, given]) => each.labels[label] === given),
    )
    if (found.length > 1) throw new Error(`${found.length} series of ${name} with ${JSON.stringify(labels)}`)
    return found[0]?.value
  }
  return { families, series, value }
}

function parseSeries(line: string, family: { name: string; type?: string } | undefined): Series {
  const [, name, inner, text] = /^([^{\s]+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? []
  if (name === undefined || family?.type === undefined) throw new Error(`not a series: ${line}`)
  const suffix = name.slice(family.name.length)
  const suffixes = family.type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']
  if (!name.startsWith(family.name) || !suffixes.includes(suffix)) throw new Error(`not of ${family.name}: ${line}`)
  if (family.type === 'counter' && !name.endsWith('_total')) throw new Error(`a counter without _total: ${line}`)
  const value = text === '+Inf' ? Number.POSITIVE_INFINITY : Number(text)
  if (Number.isNaN(value)) throw new Error(`not a number: ${line}`)
  return { name, labels: parseLabels(inner ?? '', line), value }
}

function parseLabels(text: string, line: string): Record<string, string> {
  const labels: Record<string, string> = {}
  for (let rest = text; rest !== ''; ) {
    const match = labelRule.exec(rest)
    if (match === null || match[1]! in labels) throw new Error(`labels: ${line}`)
    labels[match[1]!] = match[2]!.replaceAll(/\\(.)/g, (_, each) => (each === 'n' ? '\n' : each))
    rest = rest.slice(match[0].length)
  }
  return labels
}

/** The buckets of each series grow, and the last one contains all values. */
function checkHistogram(name: string, series: readonly Series[]): void {
  const groups = new Map<string, Series[]>()
  for (const each of series.filter(({ name: own }) => own.startsWith(`${name}_`))) {
    const { le: _, ...labels } = each.labels
    const key = JSON.stringify(labels)
    groups.set(key, [...(groups.get(key) ?? []), each])
  }
  for (const [key, group] of groups) {
    const buckets = group.filter(each => each.name === `${name}_bucket`)
    const count = group.find(each => each.name === `${name}_count`)?.value
    const sum = group.find(each => each.name === `${name}_sum`)
    const limits = buckets.map(({ labels }) => (labels.le === '+Inf' ? Number.POSITIVE_INFINITY : Number(labels.le)))
    const grows = buckets.every(({ value }, at) => at === 0 || value >= buckets[at - 1]!.value)
    const ordered = limits.every((limit, at) => at === 0 || limit > limits[at - 1]!)
    const isWhole = limits.at(-1) === Number.POSITIVE_INFINITY && buckets.at(-1)?.value === count && sum !== undefined
    if (!grows || !ordered || !isWhole) throw new Error(`histogram ${name} ${key}`)
  }
}
