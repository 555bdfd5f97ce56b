/** The page of the models is true: it names each mark of the code, each variable and each action, and no other ones. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { readSources } from '../support/source-files.ts'
import { appendModel } from './append-model.ts'
import { barrierModel } from './barrier-model.ts'
import { claimModel } from './claim-model.ts'
import { earlyModel } from './early-model.ts'
import { joinModel } from './join-model.ts'
import { leaseModel } from './lease-model.ts'
import { orderingModel } from './ordering-model.ts'

const once = { failures: 1, retries: 1 }
const models: Record<string, { initial: object; actions: readonly { name: string }[] }> = {
  Ordering: orderingModel({ writers: [{ appends: 1, savepoints: 1 }] }),
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

const page = readFileSync('docs/internals/models.md', 'utf8')
const sections = new Map(
  page
    .split('\n## ')
    .slice(1)
    .map(text => [text.split('\n')[0]!, text]),
)
const markPattern = /\[(?:order|lease|claim|early|join|append|barrier)-\d+\]/g

/** Where each mark of the code stands, with the name of the first function or constant after it. */
function marksOfTheCode(): string[] {
  return readSources('src').flatMap(({ path, text }) =>
    [...text.matchAll(markPattern)].map(({ 0: mark, index }) => {
      const after = text.slice(index)
      const [, name] = /\b(?:function|const)\s+(\w+)/.exec(after)!
      return `${mark} ${name} ${path}`
    }),
  )
}

test('the page has each mark of the code, with the function and the file where it stands', () => {
  const rows = [...page.matchAll(/^\| `(\[\w+-\d+\])` +\| `(\w+)` +\| `([\w./-]+)` +\|$/gm)]
  const onThePage = rows.map(([, mark, name, path]) => `${mark} ${name} ${path}`)

  expect(onThePage.length).toBeGreaterThan(40)
  expect(onThePage.sort()).toEqual(marksOfTheCode().sort())
})

test('the marks of each protocol are numbered without gaps, and each is the place of an action', () => {
  const marks = marksOfTheCode().map(line => line.split(' ')[0]!)
  for (const protocol of new Set(marks.map(mark => mark.slice(1, mark.indexOf('-'))))) {
    const numbers = marks.filter(mark => mark.startsWith(`[${protocol}-`)).map(mark => Number(/\d+/.exec(mark)![0]))
    expect(
      numbers.sort((a, b) => a - b),
      protocol,
    ).toEqual(numbers.map((_, at) => at + 1))
  }

  const used = new Set(
    [...sections.values()].flatMap(text => actionsOf(text).flatMap(([, place]) => place!.match(markPattern) ?? [])),
  )
  expect(marks.filter(mark => !used.has(mark))).toEqual([])
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
