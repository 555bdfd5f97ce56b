/** Every block of TypeScript or JavaScript in the README and the docs compiles and runs, as it stands, against the built package. */
import { execFile } from 'node:child_process'
import { appendFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { shortLived } from '../support/embedded.ts'
import { postgresUrl } from '../support/engines.ts'
import { builtFileOf } from '../support/program.ts'
import { pages, root } from './pages.ts'

const run = promisify(execFile)
// Inside the package, so that a block's `import 'rillflow'` is this package's own build.
const folder = join(root, '.test-results', 'blocks')
const blocks = pages.flatMap(({ path, text }) =>
  [...text.matchAll(/```(?:ts|js)\n(.*?)```/gs)].map((match, at) => ({
    name: `${path.replace('.md', '').replaceAll('/', '-')}-${at + 1}`,
    code: match[1]!,
  })),
)

describe('the blocks of the docs', () => {
  beforeAll(() => {
    rmSync(folder, { recursive: true, force: true })
    mkdirSync(folder, { recursive: true })
    for (const { name, code } of blocks) writeFileSync(join(folder, `${name}.ts`), code)
    const compilerOptions = { noUnusedLocals: false, noEmit: false, rootDir: '.', outDir: 'compiled' }
    const extend = { extends: '../../tsconfig.json', compilerOptions, include: ['*.ts'] }
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(extend))
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  test('compile and run, and print the output they show', { timeout: 600_000 }, async () => {
    const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc')
    const compiled = await run(process.execPath, [tsc, '-p', folder]).catch((error: { stdout: string }) => error)
    expect(compiled.stdout).toBe('')

    // In one process: starting the embedded engine takes long, above all the first time. The process exits
    // by itself only if the blocks left nothing open, or call exit.
    const close = 'await Promise.all([embedded, inMemory, onServer].map(store => store.close()))\n'
    appendFileSync(join(folder, 'compiled', 'README-2.js'), close)
    // That page is walked by a test of its own, with a shop that runs meanwhile. Test files are only compiled.
    const alone = blocks.filter(
      ({ name, code }) => !name.startsWith('docs-first-five-minutes') && !code.includes(`from 'vitest'`),
    )
    const all = alone.map(({ name }) => `console.log('block ${name}')\nawait import('./compiled/${name}.js')\n`)
    writeFileSync(join(folder, 'all.js'), all.join(''))
    const env = { ...process.env, DATABASE_URL: postgresUrl(), OTHER_DATABASE_URL: await anotherDatabase() }
    const flags = [...shortLived, '--import', builtFileOf(new URL('one-cluster.ts', import.meta.url))]
    const { stdout } = await run(process.execPath, [...flags, 'all.js'], { cwd: folder, env, timeout: 590_000 })

    const printed = stdout.split(/^block \S+$/m).slice(1)
    const missing = alone.flatMap(({ name, code }, at) =>
      [...code.matchAll(/console\.log\(.*\) \/\/ (.*)/g)]
        .filter(([, line]) => !printed[at]?.includes(line!))
        .map(([, line]) => `${name}: ${line}`),
    )
    expect(missing).toEqual([])
  })
})

/** A second one, on the same server. */
async function anotherDatabase(): Promise<string> {
  const client = new pg.Client(postgresUrl())
  await client.connect()
  await client.query('create database blocks_other')
  await client.end()
  const url = new URL(postgresUrl())
  url.pathname = '/blocks_other'
  return url.href
}
