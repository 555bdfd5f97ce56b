/**
 * The page of the models is true: its marks, with their places, are made from the code; it names each variable and each
 * action, and no other ones.
 */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { expectFile } from '../schema/generated-file.ts'
import { lineAt, readSources } from '../support/source-files.ts'
import { appendModel } from './append-model.ts'
import { barrierModel } from './barrier-model.ts'
import { claimModel } from './claim-model.ts'
import { counterModel } from './counter-model.ts'
import { earlyModel } from './early-model.ts'
import { joinModel } from './join-model.ts'
import { leaseModel } from './lease-model.ts'
import { orderingModel } from './ordering-model.ts'

const once = { failures: 1, retries: 1 }
const models: Record<string, { initial: object; actions: readonly { name: string }[] }> = {
  Ordering: orderingModel({ writers: [{ appends: 1, savepoints: 1 }] }),
  'Ordering with counters': counterModel({ writers: [{ appends: 1, savepoints: 1 }] }),
  'Lease, fence and checkpoint': leaseModel({ runners: 2, events: 2, moves: 1 }),
  'Claim, rescue and complete': claimModel({ ...once, executions: 2, deaths: 1, resends: 1, crashes: 1 }),
  'Executions that run before they are stored': earlyModel({
    ...{ deaths: 1, cancels: 1, registrations: 1, lostAnswers: 1, crashes: 1 },
  }),
  'Closing of joins': joinModel({
    ...{ ...once, size: 2, policy: 'all', seconds: 1 },
    ...{ isNamed: false, isDeclared: true, hasTimeout: true },
  }),
  'An append that is sent again': appendModel({
    ...{ expected: 'any', clients: 2, hasKey: true, resends: 1, others: 1, archivings: 1 },
  }),
  'The barrier of inline projections': barrierModel({ appends: [{ isStrict: true, hasCode: true }], changes: 1 }),
}

const path = 'docs/internals/models.md'
const page = readFileSync(path, 'utf8')
const sections = new Map(
  page
    .split('\n## ')
    .slice(1)
    .map(text => [text.split('\n')[0]!, text]),
)
const protocols: Record<string, string> = {
  Ordering: 'order',
  'Ordering with counters': 'counter',
  'Lease, fence and checkpoint': 'lease',
  'Claim, rescue and complete': 'claim',
  'Executions that run before they are stored': 'early',
  'Closing of joins': 'join',
  'An append that is sent again': 'append',
  'The barrier of inline projections': 'barrier',
}
const markPattern = new RegExp(`\\[(?:${Object.values(protocols).join('|')})-\\d+\\]`, 'g')
const sources = readSources('src')

interface Mark {
  readonly mark: string
  readonly protocol: string
  readonly number: number
  /** The first function or constant after it. */
  readonly name: string
  readonly place: string
}

const marks: Mark[] = sources
  .flatMap(({ path, text }) =>
    [...text.matchAll(markPattern)].map(({ 0: mark, index }) => {
      const [protocol, number] = mark.slice(1, -1).split('-') as [string, string]
      const [, name] = /\b(?:function|const)\s+(\w+)/.exec(text.slice(index))!
      return { mark, protocol, number: Number(number), name: name!, place: `${path}:${lineAt(text, index)}` }
    }),
  )
  .sort((a, b) => a.number - b.number)

test('the page has each mark of the code, with its function, file and line', () => {
  const [before, ...parts] = page.split('\n## ')
  const renewed = parts.map(text => {
    const own = marks.filter(({ protocol }) => protocol === protocols[text.split('\n')[0]!])
    return text.replace(/^\| mark .*\n(?:\|.*\n)+/m, () => tableOfMarks(own))
  })

  expect(marks.length).toBeGreaterThan(40)
  expect(Object.keys(protocols).filter(title => !sections.has(title))).toEqual([])
  expectFile(path, [before, ...renewed].join('\n## '), 'test/model/marks')
})

function tableOfMarks(own: readonly Mark[]): string {
  const rows = own.map(({ mark, name, place }) => [`\`${mark}\``, `\`${name}\``, `\`${place}\``])
  const all = [['mark', 'function', 'place'], ...rows]
  const widths = [0, 1, 2].map(at => Math.max(...all.map(row => row[at]!.length)))
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, at) => cell.padEnd(widths[at]!)).join(' | ')} |\n`
  const [heading, ...others] = all.map(line)
  return [heading, line(widths.map(width => '-'.repeat(width))), ...others].join('')
}

test('the marks of each protocol are numbered without gaps, and each is the place of an action', () => {
  for (const protocol of Object.values(protocols)) {
    const numbers = marks.filter(each => each.protocol === protocol).map(({ number }) => number)
    expect(numbers, protocol).toEqual(numbers.map((_, at) => at + 1))
  }

  const used = new Set(
    [...sections.values()].flatMap(text => actionsOf(text).flatMap(([, place]) => place!.match(markPattern) ?? [])),
  )
  expect(marks.filter(({ mark }) => !used.has(mark))).toEqual([])
})

test.each(Object.keys(models))('the page has each variable and each action of the model: %s', title => {
  const section = sections.get(title)!
  const { initial, actions } = models[title]!

  const variables = itemsOf(section, 'Variables').flatMap(([names]) => names!.match(/(?<=`)[\w.]+(?=`)/g) ?? [])
  expect(variables.sort()).toEqual(variablesOf(initial).sort())
  const names = [...new Set(actions.map(({ name }) => name.replaceAll(/\d+(?: and \d+)?/g, 'N')))]
  expect(
    actionsOf(section)
      .map(([name]) => name)
      .sort(),
  ).toEqual(names.sort())
})

test.each(Object.keys(models))('what the variables of a model stand for has a name that the code has: %s', title => {
  const code = sources.map(({ text }) => text).join('\n')
  const named = itemsOf(sections.get(title)!, 'Variables').flatMap(
    ([, what]) => what?.match(/(?<=`)\w+(?=[`…])/g) ?? [],
  )

  expect(named.length).toBeGreaterThan(1)
  expect(named.filter(name => !new RegExp(`\\b${name}`).test(code))).toEqual([])
})

function actionsOf(section: string): string[][] {
  return itemsOf(section, 'Actions')
}

/** The items of the list below this heading, with their two sides. An item may go on in the next line. */
function itemsOf(section: string, heading: string): string[][] {
  const [, after = ''] = section.split(`\n${heading}:\n\n`)
  return after
    .split('\n\n')[0]!
    .replaceAll('\n  ', ' ')
    .split('\n')
    .filter(line => line.startsWith('- '))
    .map(line => line.slice(2).split(' · '))
}

/** The variables of a state and of the first of several equal processes: `head`, `row.fence`, `writers.at`. */
function variablesOf(state: object): string[] {
  return Object.entries(state).flatMap(([name, value]) => {
    const first: unknown = Array.isArray(value) ? value[0] : value
    const isRecord = typeof first === 'object' && first !== null
    return isRecord ? Object.keys(first).map(field => `${name}.${field}`) : [name]
  })
}
