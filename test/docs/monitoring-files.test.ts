/** The dashboard for Grafana and the rules for alerts name metrics that exist, with labels that they have. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { counters, gauges, histograms, levels, totals } from '../../src/telemetry/metrics.ts'

interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly description?: string
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly targets?: readonly { readonly expr: string; readonly refId: string }[]
}

const dashboard = JSON.parse(readFileSync('docs/operations/grafana.json', 'utf8')) as {
  readonly panels: readonly Panel[]
  readonly templating: { readonly list: readonly { readonly name: string; readonly query: unknown }[] }
}
const rulesFile = readFileSync('docs/operations/alerts.yml', 'utf8')

/** The rules, in the one shape that the file has. */
const rules = [
  ...rulesFile.matchAll(
    /^ {6}- alert: (\w+)\n {8}expr: ["'](.+)["']\n {8}for: (\d+[mh])\n {8}labels:\n {10}severity: (\w+)\n {8}annotations:\n {10}summary: ["'](.+)["']\n {10}description: ["'](.+)["']$/gm,
  ),
].map(([, name, expr, after, severity, summary, description]) => ({
  name,
  expr: expr!,
  after,
  severity,
  summary,
  description,
}))

/** The labels of a series by its name, without those that Prometheus adds. */
const series = new Map<string, readonly string[]>()
for (const [name, one] of Object.entries({ ...counters, ...levels }))
  series.set(`rillflow_${name}`, 'label' in one ? [one.label] : [])
for (const name of Object.keys(totals)) series.set(`rillflow_${name}`, [])
for (const [name, { labels }] of Object.entries(gauges)) series.set(`rillflow_${name}`, labels)
for (const [name, one] of Object.entries(histograms))
  for (const suffix of ['bucket', 'sum', 'count'])
    series.set(`rillflow_${name}_${suffix}`, [
      ...('label' in one ? [one.label] : []),
      ...(suffix === 'bucket' ? ['le'] : []),
    ])

const always = ['tenant', 'instance', 'job']

/** What is wrong with an expression, in words. */
function faultsOf(expr: string): string[] {
  const faults: string[] = []
  const names = expr.match(/\brillflow_\w+/g) ?? []
  if (names.length === 0) faults.push('names no metric')
  const known = new Set([...always, ...names.flatMap(name => series.get(name) ?? [])])
  for (const name of names) {
    if (!series.has(name)) faults.push(`${name} is no metric`)
    const counted = /_(total|bucket|count|sum)$/.test(name)
    const isRate = new RegExp(`(rate|increase)\\(${name}(\\{[^}]*\\})?\\[`).test(expr)
    if (series.has(name) && counted !== isRate)
      faults.push(`${name} ${counted ? 'is a counter without a rate' : 'is a gauge with a rate'}`)
  }
  for (const [, list] of expr.matchAll(/\bby \(([^)]*)\)/g))
    for (const label of list!.split(/, */)) if (!known.has(label)) faults.push(`there is no label ${label}`)
  for (const [, list] of expr.matchAll(/\{([^}]*)\}/g))
    for (const [, label] of list!.matchAll(/(\w+)\s*(?:=~|!=|!~|=)/g))
      if (!known.has(label!)) faults.push(`there is no label ${label}`)
  for (const [open, close] of ['()', '{}', '[]'])
    if (expr.split(open!).length !== expr.split(close!).length) faults.push(`${open}${close} do not match`)
  return faults.map(fault => `${fault}: ${expr}`)
}

test('every query of the dashboard is about metrics that exist, with labels that they have', () => {
  const queries = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))

  expect(queries.length).toBeGreaterThan(25)
  expect(queries.flatMap(faultsOf)).toEqual([])
})

test('every metric that an operator acts on is in the dashboard or in a rule', () => {
  const text = `${JSON.stringify(dashboard)} ${rulesFile}`
  const left = [...Object.keys(gauges)].filter(name => !text.includes(`rillflow_${name}`))

  expect(left).toEqual(['consumer_checkpoint', 'subscription_deliveries', 'series_dropped'])
})

test('panels of the dashboard say what they show, and do not lie on each other', () => {
  const { panels } = dashboard
  const overlap = (a: Panel['gridPos'], b: Panel['gridPos']): boolean =>
    a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h

  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
  expect(panels.filter(({ type, description }) => type !== 'row' && !description)).toEqual([])
  expect(panels.filter(({ gridPos: { x, w } }) => x + w > 24)).toEqual([])
  expect(panels.flatMap((a, at) => panels.slice(at + 1).filter(b => overlap(a.gridPos, b.gridPos)))).toEqual([])
})

test('every rule has an expression that holds, a time, a severity and words for people', () => {
  expect(rules.length).toBe(rulesFile.match(/- alert:/g)!.length)
  expect(rules.length).toBeGreaterThan(8)
  expect(rules.flatMap(({ expr }) => faultsOf(expr))).toEqual([])
  expect(new Set(rules.map(({ name }) => name)).size).toBe(rules.length)
  expect(rules.filter(({ severity }) => severity !== 'warning' && severity !== 'critical')).toEqual([])
  for (const { expr, description } of rules) {
    const given = [...description!.matchAll(/\$labels\.(\w+)/g)].map(([, label]) => label!)
    expect(
      given.filter(label => !expr.includes(label)),
      description,
    ).toEqual([])
  }
})

test('promtool finds nothing to complain about, where it is installed', () => {
  const promtool = process.env.RILLFLOW_PROMTOOL ?? 'promtool'
  let said: string
  try {
    said = execFileSync(promtool, ['check', 'rules', 'docs/operations/alerts.yml'], { encoding: 'utf8', stdio: 'pipe' })
  } catch (error) {
    // Without it the rules are held by the parser above.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return
    throw error
  }
  expect(said).toContain(`SUCCESS: ${rules.length} rules found`)
})
