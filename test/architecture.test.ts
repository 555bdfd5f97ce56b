import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { parts } from '../src/parts.ts'
import * as rules from './support/architecture-rules.ts'
import { readDocuments, readSources, type Source } from './support/source-files.ts'

const sources = readSources('src', 'console', 'test', 'examples', 'bench', 'scripts')
const lockFile = { path: 'package-lock.json', text: readFileSync('package-lock.json', 'utf8') }

/** The folder of each table and each sequence. */
const homes = new Map(
  parts.flatMap(({ name, tables }) =>
    tables.flatMap(text => {
      const made = /^create (?:table|sequence) ~(\w+)/.exec(text)
      return made === null ? [] : [[made[1]!, name] as const]
    }),
  ),
)

interface Example {
  rule: rules.Rule
  /** Invented files, each of them a violation. */
  caught: Record<string, string>
  /** Invented files that look like a violation and are not one. */
  passed: Record<string, string>
  on?: Source[]
}

/** The files under 40 lines that are neither errors, tables, heads of folders nor entries of the package. */
const reasonsToBeShort = {
  'src/aggregates/saved.ts': 'a public type of several files',
  'src/audit/actor.ts': 'a context that the server enters, too',
  'src/cli/output/state.ts': 'the colours of states, for every command',
  'src/consumers/dead-letters/fingerprint.ts': 'workflows call it, too',
  'src/consumers/runners/process.ts': 'one noun: what a process reports of itself',
  'src/core/package-version.ts': 'the only file of core that reads one',
  'src/core/printable.ts': 'one rule for logs and for the command line',
  'src/core/schema-check.ts': 'the only place that knows Standard Schema',
  'src/core/stored-json.ts': 'one rule of the database',
  'src/database/postgres/with-looks.ts': 'loaded only for a server',
  'src/database/storable.ts': 'one rule for both engines',
  'src/events/append/committed.ts': 'one verb, between append and order',
  'src/events/append/idempotency.ts': 'rows of a table that only this folder may write',
  'src/events/read/position-at.ts': 'one verb',
  'src/schema/expected-with.ts': 'stands between generated text and its readers',
  'src/schema/migrations/0001-baseline.ts': 'a migration',
  'src/server/access/attempts.ts': 'one noun with a life',
  'src/server/api/request.ts': 'a type that all routes share',
  'src/server/api/shown.ts': 'one rule for routes and for the live feed',
  'src/server/cached.ts': 'one noun with a life',
  'src/server/connections.ts': 'one noun with a life',
  'src/server/console/assets.ts': 'the build replaces it',
  'src/server/live/pace.ts': 'one noun with a life',
  'src/subscriptions/pending-work.ts': 'its tables are named only in its folder',
  'src/telemetry/cost.ts': 'a context that the server enters, too',
  'src/testing/caller-line.ts': 'one verb',
  'src/upkeep/deployment/named.ts': 'every check of a deployment uses it',
  'src/upkeep/deployment/tables.ts': 'one check of a deployment',
  'src/workflows/hints.ts': 'the kinds of hints of workflows',
}

/** A timer in each of them ends one connection that has fallen silent. */
const watchdogs = ['hub', 'guest'].map(name => `src/database/pglite/${name}.ts`)
watchdogs.push('src/database/postgres/copy.ts', 'src/database/postgres/listen.ts')

const sentences: Record<string, Example> = {
  'each part of src imports only parts above it in the table of layers': {
    rule: rules.importsOnlyFromAbove,
    caught: {
      'src/core/clock.ts': `import { sql } from '../database/sql.ts'`,
      'src/events/read.ts': `import type {\n  Collection,\n} from '../documents/documents.ts'`,
      'src/documents/bulk.ts': `const append = await import('../events/append.ts')`,
      'src/workflows/run.ts': `export { group } from '../subscriptions/group.ts'`,
      'src/sessions/sessions.ts': `import '../store.ts'`,
      'src/store.ts': `import { main } from './cli/cli.ts'`,
      'src/schema/plan.ts': `import { shop } from '../../test/support/shop.ts'`,
      'src/schema/sync.ts': `import { openStore } from 'rillflow'`,
      'src/misc/misc.ts': '',
    },
    passed: {
      'src/core/retry.ts': `import { randomInt } from 'node:crypto'\nimport { sleep } from './clock.ts'`,
      'src/events/append.ts': `// import x from '../documents/x.ts'\nimport { sql } from '../database/sql.ts'`,
      'src/schema/migrations/0001-events.ts': `import type { Migration } from '../migration.ts'`,
      'src/server/server.ts': `import type { Log } from '../events/log.ts'`,
      'src/index.ts': `export { openStore } from './store.ts'\nexport { now } from './core/clock.ts'`,
      'src/cli/migrate.ts': `import { openStore } from '../index.ts'\nimport { serve } from '../server/server.ts'`,
    },
  },
  'a table is named only in its folder, and written only there': {
    rule: rules.tablesStayAtHome(homes),
    caught: {
      'src/events/wake.ts': `const statement = sql\`select from ~workflow_lanes\``,
      'src/consumers/retry.ts': `const table = identifier(log.schema, 'workflows')`,
      'src/projections/build.ts': `sql\`update \${consumerNames(log).consumers} as c set fence = 1\``,
      'src/workflows/failure.ts': `sql\`\n  insert into \${dead_letters} as d\n  values (1)\``,
      'src/workflows/dispatch.sql.ts': `plpgsql\`delete from ~consumers as c;\``,
      'src/transfer/cut.ts': `sql\`delete from \${names.events} where position > 1\``,
    },
    passed: {
      'src/consumers/row.ts': `sql\`update \${consumerNames(log).consumers} set fence = 1\``,
      'src/consumers/consumers.sql.ts': `fragment\`update ~dead_letters as d set retry_at = null\``,
      'src/workflows/status.ts': `sql\`select from \${log.names.events} as e\``,
      'src/workflows/claim.sql.ts': `plpgsql\`left join ~dead_letters as d on true\``,
      'src/consumers/consumers.ts': `const kinds = ['events', 'workflows']`,
    },
  },
  'no file is too long to read at once': {
    rule: rules.filesAreShort,
    caught: {
      'src/events/append.ts': 'x\n'.repeat(501),
      'test/events/append.test.ts': 'x\n'.repeat(601),
      'console/pages/events.tsx': 'x\n'.repeat(251),
    },
    passed: { 'src/events/append.ts': 'x\n'.repeat(400), 'test/events/append.test.ts': 'x\n'.repeat(500) },
  },
  'a file of src is long enough to be worth opening, or has a reason': {
    rule: rules.shortFilesHaveReasons(reasonsToBeShort),
    caught: { 'src/events/outcome-word.ts': 'x\n'.repeat(39), 'src/core/printable.ts': 'x\n'.repeat(41) },
    passed: {
      'src/events/errors.ts': '',
      'src/events/schema.ts': '',
      'src/events/events.ts': '',
      'src/patch.ts': '',
      'src/core/printable.ts': 'x\n'.repeat(30),
      'src/events/append.ts': 'x\n'.repeat(40),
      'test/events/append.test.ts': '',
    },
  },
  'a loop is core/loop.ts': {
    rule: rules.loopsAreTheKernel(watchdogs),
    caught: { 'src/events/a.ts': 'const timer = setInterval(look, 100)' },
    passed: {
      'src/events/a.ts': '// setInterval(look, 100)',
      'src/database/postgres/copy.ts': 'const timer = setInterval(end, 100)',
    },
  },
  'no file has a general name such as utils or helpers': {
    rule: rules.filesAreNamedAfterThings,
    caught: { 'src/core/utils.ts': '', 'test/support/helpers.test.ts': '', 'src/events/append-helper.ts': '' },
    passed: { 'test/types/append.ts': '', 'src/events/event-types.ts': '' },
  },
  'only src/index.ts re-exports other files': {
    rule: rules.onlyOneBarrel,
    caught: { 'src/events/index.ts': '' },
    passed: { 'src/index.ts': '', 'src/documents/indexes.ts': '' },
  },
  'each folder of src has a file of its name that begins with a head comment': {
    rule: rules.foldersHaveHeads,
    caught: {
      'src/events/append.ts': '/** Appends. */',
      'src/schema/schema.ts': 'export const a = 1',
      'console/parts/table.tsx': '/** Rows. */',
    },
    passed: {
      'src/index.ts': '',
      'src/cli/cli.ts': '#!/usr/bin/env node\n/** Commands. */',
      'src/core/core.ts': '/**\n * Pure things.\n */',
      'src/core/clock.ts': '',
      'console/main.tsx': '',
      'console/shell/shell.tsx': '/** Around every page. */',
      'src/core/migrations/0001-events.ts': '',
    },
  },
  'the browser program imports types of the server and no code': {
    rule: rules.consoleImportsOnlyTypes,
    caught: { 'console/api/api.ts': `import { roles } from '../../src/server/api/route.ts'` },
    passed: {
      'console/api/api.ts': `import type { Role } from '../../src/server/api/route.ts'\nimport { a } from '../parts/a.ts'`,
    },
  },
  'the browser program makes no markup from text': {
    rule: rules.markupIsNeverText,
    caught: {
      'console/json/view.tsx': 'element.innerHTML = text',
      'console/parts/bar.tsx': '<div style="width: 3px" />',
    },
    passed: { 'console/parts/table.tsx': 'cell.style.height = height' },
  },
  'only the CLI prints': {
    rule: rules.onlyTheCliPrints,
    caught: { 'src/events/append.ts': `console.log('appended')` },
    passed: {
      'src/events/read.ts': `/* console.log(event) */ const a = 'console.'`,
      'src/cli/cli.ts': 'console.log(1)',
    },
  },
  'only the CLI listens to the process': {
    rule: rules.onlyTheCliListensToTheProcess,
    caught: { 'src/store.ts': `process.on('SIGTERM', close)`, 'src/core/clock.ts': `process.once('exit', stop)` },
    passed: { 'src/cli/cli.ts': `process.on('SIGINT', close)`, 'src/core/id.ts': 'process.hrtime.bigint()' },
  },
  'no code in src uses the type any': {
    rule: rules.nothingIsAny,
    caught: {
      'src/core/a.ts': 'function f(x: any) {}',
      'src/core/b.ts': 'const x = y as any',
      'src/core/c.ts': 'let x: Record<string, any>',
      'src/core/d.ts': 'type X = string | any[]',
      'console/api/api.ts': 'const answer = body as any',
    },
    passed: {
      'src/core/a.ts': `const expected: 'any' | number = 'any' // any: never conflicts`,
      'src/core/b.ts': 'AbortSignal.any([a, b]); const options = { any: 1 }; isAny<Company>()',
      'src/core/c.ts': 'const any = steps.get(1); return exact ? exact : any',
    },
  },
  'time, timers and chance come from one host that a simulation can replace': {
    rule: rules.hostIsReplaceable,
    caught: {
      'src/events/a.ts': 'const at = performance.now()',
      'src/consumers/b.ts': 'const timer = setTimeout(look, 10)',
      'src/workflows/c.ts': 'const id = randomUUID()',
    },
    passed: {
      'src/core/host.ts': 'const now = Date.now()',
      'src/events/a.ts': 'const timer = log.clock.setTimeout(look, 10) // not Date.now()',
      'src/database/pglite/engine.ts': 'let turnedAt = performance.now()',
      'src/core/clock.ts': 'export interface Clock { setTimeout(fn: () => void, ms: number): Timer }',
    },
  },
  'no code is marked as left for later': {
    rule: rules.nothingIsLeftForLater,
    caught: { 'src/core/a.ts': `// ${'TO'}${'DO'} later`, 'test/a.test.ts': `/* ${'FIX'}${'ME'} */` },
    passed: { 'src/core/a.ts': 'const todo = 1' },
  },
  'no test is focused, skipped or only planned': {
    rule: rules.everyTestRuns,
    caught: {
      'test/a.test.ts': `test.only('a', () => {})`,
      'test/b.test.ts': `describe.concurrent.skip('b', () => {})`,
      'test/c.test.ts': `it.todo('c')`,
    },
    passed: { 'test/a.test.ts': `test('test.only is detected', () => {})`, 'test/b.test.ts': `policy.skip()` },
  },
  'every file that the bench imports exists': {
    rule: rules.benchImportsExist,
    caught: {
      'bench/benches/append.ts': `import { compare } from '../rounds.ts'`,
      'bench/rigs/claimer.ts': `const { claim } = await import('../../src/workflows/claim.ts')`,
    },
    passed: {
      'bench/benches/bulk.ts': `import { compare } from '../harness/rounds.ts'\nimport pg from 'pg'`,
      'bench/harness/rounds.ts': `// import a from './a.ts'`,
      'bench/harness/rillflow.ts': `export * from '../../dist/index.js'`,
    },
  },
  'the message of an invalid option is a sentence': {
    rule: rules.optionErrorsAreSentences,
    caught: {
      'src/core/page.ts': `throw new InvalidOption({ option: 'after', reason: 'must be text' })`,
      'src/core/options.ts': 'throw new InvalidOption({\n  option,\n  reason: `must be a number`,\n})',
    },
    passed: {
      'src/core/page.ts': `throw new InvalidOption({ option: 'after', reason: 'The option "after" must be text.' })`,
      'src/core/options.ts': 'throw new InvalidOption({ option, reason: `The limit must be a number.` })',
      'src/core/name.ts': `throw new InvalidName({ what, given, reason: 'is empty' })`,
    },
  },
  'source, documentation and test titles use plain words': {
    rule: rules.wordsArePlain,
    caught: {
      'src/consumers/run.ts': '/** A runner is told of it. */',
      'src/consumers/feed.ts': 'async function applyTold() {}',
      'src/core/a.ts': '// Whoever holds it continues.',
      'src/core/b.ts': '/** Built beside its writers. */',
      'src/core/c.ts': 'const mostSessions = 10',
      'src/core/d.ts': '/**\n * Who cannot renew\n * must stop.\n */',
      'src/core/e.ts': 'refuse(`"run" is no function.`)',
      'src/core/f.ts': '/**\n * That rebuild is gone\n * on with.\n */',
      'src/core/g.ts': '// It is not in the log any more.',
      'src/core/h.ts': '/** A heartbeat is a sign of life. */',
      'src/core/i.ts': 'const isTired = true',
      'src/core/j.ts': '/** What a runner runs. */',
      'src/tenants/roster.ts': 'export const roster = 1',
      'src/workflows/worker.ts': 'interface Seats { free: number }',
      'src/workflows/publish.ts': 'const flow = await workflows.publish(event)',
      'src/workflows/complete.sql.ts': 'plpgsql`create function ~workflow_finish()`',
      'src/workflows/retry.ts': 'if (row.is_letter) return',
      'src/workflows/insight.ts': 'export interface LetterGroup {}',
      'console/pages/a.tsx': '<p>Somebody was faster.</p>',
      'docs/guides/runners.md': 'Start a daemon in each process.',
      'README.md': 'Stop who writes the data.',
      'test/a.test.ts': `${'te'}st('nobody hears of it', () => {})`,
      'test/b.test.ts': `${'desc'}ribe.each([1])(\`a worker with seats\`, () => {})`,
    },
    passed: {
      'src/core/a.ts': '// There is no store. It is no longer open. Is there any more work?',
      'src/core/b.ts': '/** The user who caused it. */ process.nextTick(run)',
      'src/core/c.ts': "import { finished } from 'node:stream/promises'\nconst mark = 'unfinished'",
      'src/core/d.ts':
        'const overflow = workflow; // at most 10, almost all, jointly, stolen, a clone, a heartbeat, the heart',
      'src/core/e.ts':
        'for (const letter of text) deadLetters.push(letter) // a capital letter; dead_letters, DeadLetterGroup',
      'src/core/f.ts': '/**\n * A lease.\n *\n * What can fail: a database. It says what it did. */',
      'docs/guides/a.md': 'A request flows from one service to another. People who write code.',
      'test/a.test.ts': "const told = 1\ntest('a retry of a dead letter succeeds', () => whoever(told))",
      'bench/peers/other.ts': 'other.toldSomething()',
    },
    on: [...sources, ...readDocuments('docs', 'README.md').map(withoutForeignNames)],
  },
  'no table of the documentation is wider than a line': {
    rule: rules.tablesFit,
    caught: { 'docs/guides/a.md': `# A\n\n| ${'a'.repeat(120)} |` },
    passed: { 'docs/guides/a.md': `| a | b |\n\n- ${'a'.repeat(130)}` },
    on: [...readDocuments('docs', 'README.md')],
  },
  'the lock file holds no download addresses': {
    rule: rules.lockFileHasNoAddresses,
    caught: { 'package-lock.json': '{ "node_modules/pg": { "resolved": "" } }' },
    passed: { 'package-lock.json': '{ "node_modules/resolved": { "version": "1.0.0" } }' },
    on: [lockFile],
  },
}

for (const [sentence, { rule, caught, passed, on }] of Object.entries(sentences)) {
  test(sentence, () => {
    expect(rule(on ?? sources)).toEqual([])
  })

  test(`the rule "${sentence}" detects violations and nothing else`, () => {
    const offences = rule(madeUp(caught)).join('\n')

    for (const path of Object.keys(caught)) expect(offences).toMatch(new RegExp(`^${path}:\\d+ `, 'm'))
    expect(rule(madeUp(passed))).toEqual([])
  })
}

test('a violation names its line', () => {
  const [offence] = rules.nothingIsAny(madeUp({ 'src/core/a.ts': '/*\n\n*/\nconst a = `\n`\nlet b: any' }))

  expect(offence).toMatch(/^src\/core\/a\.ts:6 /)
})

function madeUp(files: Record<string, string>): Source[] {
  return Object.entries(files).map(([path, text]) => ({ path, text }))
}

/** The names of another library are as they are. */
function withoutForeignNames<S extends { readonly path: string; readonly text: string }>(source: S): S {
  if (!source.path.endsWith('coming-from-rillflow-rust.md')) return source
  return { ...source, text: source.text.replaceAll(/`[^`\n]*`/g, '') }
}
