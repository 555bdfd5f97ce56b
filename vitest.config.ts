/**
 * One project without a database, and one per engine that runs the same files on it.
 *
 *     npx vitest run --project unit                            RILLFLOW_TEST_ENGINES=pglite npx vitest run events
 *     DATABASE_URL=postgres://… npm test                       runs on that server instead of our own
 */
import { defineConfig, type TestProjectInlineConfiguration, type ViteUserConfig } from 'vitest/config'
import type { EngineName } from './test/support/global-setup.ts'

const PARTS = ['database', 'schema', 'events', 'documents', 'consumers', 'aggregates', 'projections', 'subscriptions']
const ON_AN_ENGINE = [...PARTS, 'sessions', 'model', 'chaos', 'docs', 'telemetry', 'testing']

/** Files about the server itself. */
const ONLY_ON_A_SERVER = [
  'test/database/server.test.ts',
  'test/chaos/{held-stream,resend,rewound,server-killed,silent-server}.test.ts',
  'test/chaos/consumers/{killed,nodes,paused,rebuild,server,spread,zombie}.test.ts',
]

/** Files about the embedded engine itself. */
const ONLY_EMBEDDED = [
  ...['folder-lock', 'line', 'pglite'].map(name => `test/database/${name}.test.ts`),
  'test/chaos/{,consumers/}embedded.test.ts',
]

/** The README's blocks choose their engines themselves: once is enough. */
const ONCE = 'test/docs/**'

/** What the oldest server runs, so that the whole run takes less than ten minutes; the long chaos runs are for all. */
const ON_THE_OLDEST = [...PARTS, 'sessions', 'telemetry', 'testing']

export interface EngineRun {
  folders?: readonly string[]
  env?: Record<string, string>
  testTimeout?: number
}

/** The projects of the engines asked for in `RILLFLOW_TEST_ENGINES`; all of them, if none is. */
export function engineProjects(run: EngineRun = {}): TestProjectInlineConfiguration[] {
  const engines: EngineName[] = ['pglite', 'postgres-18', 'postgres-15']
  const asked = process.env.RILLFLOW_TEST_ENGINES?.split(',') ?? engines
  const unknown = asked.filter(name => !engines.includes(name as EngineName))
  if (unknown.length > 0) throw new Error(`RILLFLOW_TEST_ENGINES: no engine "${unknown}", there are ${engines}`)
  return engines
    .filter(engine => asked.includes(engine))
    .filter(engine => engine !== 'postgres-15' || !process.env.DATABASE_URL)
    .map((engine, index) => engineProject(engine, index + 1, run))
}

function engineProject(engine: EngineName, groupOrder: number, run: EngineRun): TestProjectInlineConfiguration {
  const folders = run.folders ?? (engine === 'postgres-15' ? ON_THE_OLDEST : ON_AN_ENGINE)
  return {
    extends: true,
    test: {
      name: engine,
      include: folders.map(folder => `test/${folder}/**/*.test.ts`),
      exclude: [
        ...(engine === 'pglite' ? ONLY_ON_A_SERVER : ONLY_EMBEDDED),
        ...(engine === 'postgres-18' ? [] : [ONCE]),
      ],
      provide: { engine },
      env: run.env ?? {},
      testTimeout: run.testTimeout ?? 60_000,
      globalSetup: engine === 'pglite' ? [] : ['test/support/global-setup.ts'],
      // One engine after the other: a worker, and the PGlite in it, lives only as long as the next file is of its project.
      sequence: { groupOrder },
    },
  }
}

export const shared: NonNullable<ViteUserConfig['test']> = {
  pool: 'forks',
  isolate: false,
  maxWorkers: 2,
  hookTimeout: 60_000,
  reporters: ['default', './test/support/reporter.ts'],
}

export default defineConfig({
  test: {
    ...shared,
    projects: [
      {
        extends: true,
        test: { name: 'unit', include: ['test/*.test.ts', 'test/core/**/*.test.ts'], testTimeout: 60_000 },
      },
      ...engineProjects(),
    ],
  },
})
