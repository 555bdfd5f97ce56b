/**
 * One project without a database, and one per engine that runs the same files on it.
 *
 *     npx vitest run --project unit                            RILLFLOW_TEST_ENGINES=pglite npx vitest run events
 *     DATABASE_URL=postgres://… npm test                       runs on that server instead of our own
 */
import { defineConfig, type TestProjectInlineConfiguration, type ViteUserConfig } from 'vitest/config'
import { findBrowser, noBrowser } from './test/support/browser.ts'
import type { EngineName } from './test/support/global-setup.ts'
import { SlowestFirst } from './test/support/slowest-first.ts'

/** Reached only by what hangs: processes and engines of tests take seconds to start, on a busy machine many. */
const patienceMs = 180_000

const PARTS = [
  'database',
  'schema',
  'events',
  'documents',
  'consumers',
  'aggregates',
  'projections',
  'subscriptions',
  'tenants',
]
export const ON_AN_ENGINE = [
  ...PARTS,
  'workflows',
  'sessions',
  'upkeep',
  'audit',
  'hostile',
  'transfer',
  'model',
  'chaos',
  'docs',
  'telemetry',
  'testing',
  'server',
  'cli',
  'integrations',
]

/** Files about the server itself. */
const ONLY_ON_A_SERVER = [
  'test/database/{server,looks,poolers,first-contact,settings,silence,cancel}.test.ts',
  'test/chaos/{counter-ordering,fail-over,held-stream,processes,resend,rewound,server-killed,silent-server}.test.ts',
  'test/chaos/consumers/{frozen-process,killed,runners,paused,rebuild,server,spread,starved}.test.ts',
  'test/chaos/workflows/{everything-at-once,unavailable-server}.test.ts',
  'test/tenants/directory.test.ts',
  'test/chaos/tenants/moving.test.ts',
  'test/transfer/move/*.test.ts',
  'test/cli/verify.test.ts',
  'test/integrations/transactions.test.ts',
  'test/events/node-errors.test.ts',
  'test/server/plans.test.ts',
]

/** Files about the embedded engine itself. */
const ONLY_EMBEDDED = [
  ...['folder-lock', 'guests', 'guest-conformance', 'image', 'turns', 'pglite', 'bundle'].map(
    name => `test/database/${name}.test.ts`,
  ),
  'test/chaos/{,consumers/,workflows/}embedded.test.ts',
  'test/transfer/backup/{backup,restore}.test.ts',
  'test/testing/crash-everywhere.test.ts',
]

/** The README's blocks choose their engines themselves: once is enough. */
const ONCE = 'test/docs/**'

/** Models of the protocols, and the checker that explores them: they need no database. */
const MODELS = ['test/model/checker.test.ts', 'test/model/marks.test.ts', 'test/model/*-model.test.ts']

/** Whole stores on an engine of their own, in the hands of a scheduler. */
const SIMULATIONS = ['test/simulation/*.test.ts']

/** What the oldest server runs: what a version of the server can change. The long chaos runs are for all. */
const ON_THE_OLDEST = ['database', 'schema', 'events', 'documents', 'sessions']
const ALSO_ON_THE_OLDEST = [
  'test/consumers/{administer,lease}.test.ts',
  'test/projections/{administration,rebuild,switch}.test.ts',
  'test/subscriptions/{acks,groups}.test.ts',
  'test/tenants/tenants.test.ts',
  'test/upkeep/{doctor,upkeep}.test.ts',
  'test/cli/verify.test.ts',
  'test/workflows/{claim,dead-letters,joins,publish,steps}.test.ts',
]

/** What a version of the server cannot change, and takes long: the memory of our process, and connections that are silent. */
const NOT_ON_THE_OLDEST = [
  'test/documents/{size,large-documents}.test.ts',
  'test/events/large-events.test.ts',
  'test/database/{silence,poolers}.test.ts',
]

/** In every run with counters: what depends on how numbers are drawn. All other files: `npm run test:counter`. */
const WITH_COUNTERS = [
  'test/events/{append,tail,import,idempotency,transactions}.test.ts',
  'test/chaos/{transactions,version-races}.test.ts',
  'test/schema/{numbers,sync}.test.ts',
  'test/consumers/{lease,administer,replay}.test.ts',
  'test/workflows/{publish,claim,joins,steps,lanes}.test.ts',
]

/** Files about the nodes of a cluster. */
const ONLY_ON_A_CLUSTER = ['test/tenants/{cluster,nodes}.test.ts', 'test/chaos/tenants/every-node.test.ts']

/** Files about sequences and announced bounds, which a schema with counters does not have. */
const ABOUT_ANNOUNCING = [
  ...['test/events/settled.test.ts', 'test/chaos/ordering.test.ts', 'test/cli/verify.test.ts'],
  'test/schema/migrations.test.ts',
]

export interface EngineRun {
  engines?: readonly EngineName[]
  folders?: readonly string[]
  env?: Record<string, string>
  testTimeout?: number
}

/** The projects of the engines asked for in `RILLFLOW_TEST_ENGINES`; all of them, if none is. */
export function engineProjects(run: EngineRun = {}): TestProjectInlineConfiguration[] {
  const engines: EngineName[] = ['pglite', 'postgres-18', 'postgres-15', 'counter', 'citus']
  const asked = run.engines ?? process.env.RILLFLOW_TEST_ENGINES?.split(',') ?? engines
  const unknown = asked.filter(name => !engines.includes(name as EngineName))
  if (unknown.length > 0) throw new Error(`RILLFLOW_TEST_ENGINES: no engine "${unknown}", there are ${engines}`)
  return engines
    .filter(engine => asked.includes(engine))
    .filter(engine => engine !== 'citus' || hasCluster())
    .filter(engine => !process.env.DATABASE_URL || (engine !== 'postgres-15' && engine !== 'counter'))
    .map(engine => engineProject(engine, run))
}

/** Said once, so that nobody takes silence for success. */
function hasCluster(): boolean {
  if (process.env.CITUS_URL) return true
  if (process.env.RILLFLOW_TEST_CITUS_SAID === undefined)
    process.once('exit', () => console.log('Citus: not tested (CITUS_URL is not set)'))
  process.env.RILLFLOW_TEST_CITUS_SAID = 'yes'
  return false
}

function engineProject(engine: EngineName, run: EngineRun): TestProjectInlineConfiguration {
  const isOldest = engine === 'postgres-15' && run.folders === undefined
  const isShort = engine === 'counter' && run.folders === undefined
  const folders = run.folders ?? (isOldest ? ON_THE_OLDEST : isShort ? [] : ON_AN_ENGINE)
  return {
    extends: true,
    test: {
      name: engine,
      include: [
        ...folders.map(folder => `test/${folder}/**/*.test.ts`),
        ...(isOldest ? ALSO_ON_THE_OLDEST : isShort ? WITH_COUNTERS : []),
      ],
      exclude: [
        ...(engine === 'pglite' ? ONLY_ON_A_SERVER : ONLY_EMBEDDED),
        ...(engine === 'counter' || engine === 'citus' ? ABOUT_ANNOUNCING : []),
        ...(engine === 'citus' ? [] : ONLY_ON_A_CLUSTER),
        ...(isOldest ? NOT_ON_THE_OLDEST : []),
        ...(engine === 'postgres-18' ? [] : [ONCE]),
        ...MODELS,
      ],
      provide: { engine },
      env: run.env ?? {},
      testTimeout: run.testTimeout ?? patienceMs,
      setupFiles: ['test/support/statement-recording.ts'],
      globalSetup: [
        ...['test/support/program.ts', 'test/support/statement-recording-setup.ts'],
        ...(engine === 'pglite' ? [] : ['test/support/global-setup.ts']),
      ],
      // For two cores: tests on the embedded engine wait half of their time, those on a server three quarters.
      maxWorkers: engine === 'pglite' ? 3 : 4,
      sequence: { groupOrder: engine === 'pglite' ? 1 : 2 },
    },
  }
}

/** Holds what all others have sent against the rules, so it comes last. It needs the embedded engine and nothing else. */
const portabilityProject: TestProjectInlineConfiguration = {
  extends: true,
  test: {
    name: 'portability',
    include: ['test/portability/**/*.test.ts'],
    provide: { engine: 'pglite' },
    testTimeout: patienceMs,
    setupFiles: ['test/support/statement-recording.ts'],
    globalSetup: ['test/support/statement-recording-setup.ts'],
    maxWorkers: 1,
    sequence: { groupOrder: 3 },
  },
}

/** Pages of the console in a real browser: one worker, because a browser has threads of its own. */
const browserProject: TestProjectInlineConfiguration = {
  extends: true,
  test: {
    name: 'browser',
    include: ['test/console/**/*.test.ts'],
    testTimeout: patienceMs,
    maxWorkers: 1,
    sequence: { groupOrder: 4 },
  },
}

/** Left out, with a message, where no browser can be had; with `CI` set that is a failure. */
async function browserProjects(): Promise<TestProjectInlineConfiguration[]> {
  if ((await findBrowser()) !== undefined) return [browserProject]
  if (process.env.CI) throw new Error(noBrowser)
  process.once('exit', () => console.log(noBrowser))
  return []
}

export const shared: NonNullable<ViteUserConfig['test']> = {
  pool: 'forks',
  isolate: false,
  maxWorkers: 2,
  sequence: { sequencer: SlowestFirst },
  hookTimeout: patienceMs,
  reporters: ['default', './test/support/summary-reporter.ts'],
}

export default defineConfig({
  test: {
    ...shared,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: [
            ...['', 'core/**/', 'history/', 'types/'].map(folder => `test/${folder}*.test.ts`),
            ...MODELS,
            ...SIMULATIONS,
          ],
          testTimeout: patienceMs,
        },
      },
      ...engineProjects(),
      portabilityProject,
      ...(await browserProjects()),
    ],
  },
})
