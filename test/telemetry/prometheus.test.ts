import { readFileSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { counters, gauges, histograms, levels, totals } from '../../src/telemetry/metrics.ts'
import { renderMetrics } from '../../src/telemetry/prometheus.ts'
import { openRegistry } from '../../src/telemetry/registry.ts'
import { parseMetrics } from '../support/parse-metrics.ts'

test('a label has a limited number of values: further ones are counted together', () => {
  const figures = openRegistry()
  for (let n = 0; n < 1_000; n++) figures.count('consumer_events_total', 2, `consumer-${n}`)
  for (let n = 0; n < 1_000; n++) figures.observe('consumer_batch_seconds', 0.01, `consumer-${n}`)

  const { series, value } = parseMetrics(renderMetrics([{ families: figures.families() }]))

  const shown = series.filter(({ name }) => name === 'rillflow_consumer_events_total')
  expect(shown).toHaveLength(201)
  expect(value('rillflow_consumer_events_total', { consumer: 'other' })).toBe(2 * 800)
  expect(shown.reduce((sum, each) => sum + each.value, 0)).toBe(2_000)
  expect(figures.counters().consumer_events_total).toBe(2_000)
  expect(value('rillflow_consumer_batch_seconds_count', { consumer: 'other' })).toBe(800)
})

test('a metric shows a limited number of series, and the number of hidden ones', () => {
  const samples = Array.from({ length: 30 }, (_, n) => ({
    labels: { consumer: `c-${n}`, kind: 'projection' },
    value: n,
  }))
  const family = { name: 'consumer_lag_events', type: 'gauge', help: 'Lag.', samples } as const

  const { series, value } = parseMetrics(renderMetrics([{ families: [family] }], 10))

  expect(series.filter(({ name }) => name === 'rillflow_consumer_lag_events')).toHaveLength(10)
  expect(value('rillflow_series_dropped', { metric: 'rillflow_consumer_lag_events' })).toBe(20)
})

test('tenants are a label of every series, in one family', () => {
  const [acme, beta] = [openRegistry(), openRegistry()]
  acme.count('events_appended_total', 1)
  beta.count('events_appended_total', 2)
  beta.observe('event_append_seconds', 0.3)

  const sources = [
    { tenant: 'acme', families: acme.families() },
    { tenant: 'beta', families: beta.families() },
  ]
  const { value } = parseMetrics(renderMetrics(sources))

  expect(value('rillflow_events_appended_total', { tenant: 'acme' })).toBe(1)
  expect(value('rillflow_events_appended_total', { tenant: 'beta' })).toBe(2)
  expect(value('rillflow_event_append_seconds_bucket', { tenant: 'beta', le: '0.25' })).toBe(0)
  expect(value('rillflow_event_append_seconds_bucket', { tenant: 'beta', le: '0.5' })).toBe(1)
})

test('a value beyond all buckets is counted, and any text is allowed in a label', () => {
  const figures = openRegistry()
  figures.observe('consumer_batch_seconds', 1e9, 'a\n"b"\\')

  const { value } = parseMetrics(renderMetrics([{ families: figures.families() }]))

  const consumer = 'a\n"b"\\'
  expect(value('rillflow_consumer_batch_seconds_bucket', { consumer, le: '300' })).toBe(0)
  expect(value('rillflow_consumer_batch_seconds_bucket', { consumer, le: '+Inf' })).toBe(1)
})

test('docs/reference/metrics.md is generated from the table of metrics', () => {
  const path = new URL('../../docs/reference/metrics.md', import.meta.url)
  const made = describeMetrics()
  if (process.env.RILLFLOW_UPDATE === '1') writeFileSync(path, made)

  expect(readFileSync(path, 'utf8')).toBe(made)
})

function describeMetrics(): string {
  const parts: [string, string, Record<string, { help: string; label?: string; labels?: readonly string[] }>][] = [
    ['Counters', 'What has happened in the process that answers, since its store was opened.', counters],
    ['Levels', 'What is under way in the process that answers. Gauges.', levels],
    ['Histograms', 'How what happened in the process that answers is spread.', histograms],
    [
      'Gauges',
      'How things stand. All but `connections` are read from the database: any process gives the same.',
      gauges,
    ],
    ['Totals', 'What all processes have counted together. Counters, read from the database.', totals],
  ]
  const sections = parts.map(([title, about, table]) => {
    const items = Object.entries(table).map(([name, { help, label, labels = label === undefined ? [] : [label] }]) => {
      const given = labels.length === 0 ? '' : ` (${labels.map(each => `\`${each}\``).join(', ')})`
      return `- \`rillflow_${name}\`${given}: ${help}\n`
    })
    return `## ${title}\n\n${about}\n\n${items.join('')}`
  })
  return `# Metrics

What \`/metrics\` of \`store.server()\` shows, in the text format of Prometheus. This page is made of \`src/telemetry/metrics.ts\`;
\`RILLFLOW_UPDATE=1 npx vitest run test/telemetry/prometheus\` writes it. Times are in seconds. The labels of a metric are in
brackets; every metric also has the label \`tenant\` where a tenant is known. A label has at most 200 values in a process (the
rest is \`other\`), a metric 1000 series.

${sections.join('\n')}`
}
