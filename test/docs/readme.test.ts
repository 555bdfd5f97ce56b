/** Every TypeScript block of the README compiles and runs, as it stands, against the built package. */
import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { postgresUrl } from '../support/engines.ts'

const run = promisify(execFile)
const root = new URL('../..', import.meta.url).pathname
// Inside the package, so that a block's `import 'rillflow'` is this package's own build.
const folder = join(root, '.test-results', 'readme')
const blocks = [...readFileSync(join(root, 'README.md'), 'utf8').matchAll(/```ts\n(.*?)```/gs)].map(match => match[1]!)

describe('the README', () => {
  beforeAll(() => {
    rmSync(folder, { recursive: true, force: true })
    mkdirSync(folder, { recursive: true })
    blocks.forEach((block, at) => {
      writeFileSync(join(folder, `block-${at + 1}.ts`), block)
    })
    const extend = { extends: '../../tsconfig.json', compilerOptions: { noUnusedLocals: false }, include: ['*.ts'] }
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(extend))
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  test('has blocks to try', () => {
    expect(blocks.length).toBeGreaterThanOrEqual(3)
  })

  test('compiles, every block', async () => {
    const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc')

    const compiled = await run(process.execPath, [tsc, '-p', folder]).catch((error: { stdout: string }) => error)

    expect(compiled.stdout).toBe('')
  })

  test.each(blocks.map((_, at) => at + 1))('runs, block %i', { timeout: 90_000 }, async number => {
    const tsx = join(root, 'node_modules', 'tsx', 'dist', 'cli.mjs')
    // The process ends by itself only if the block left nothing open, or says so.
    const script = join(folder, `block-${number}.ts`)
    if (number === 2)
      writeFileSync(script, `${blocks[1]}\nawait Promise.all([embedded, inMemory, onServer].map(s => s.close()))\n`)

    const env = { ...process.env, DATABASE_URL: postgresUrl() }
    const { stdout } = await run(process.execPath, [tsx, script], { cwd: folder, env, timeout: 80_000 })

    const expected = [...blocks[number - 1]!.matchAll(/console\.log\(.*\) \/\/ (.*)/g)].map(match => match[1]!)
    for (const line of expected) expect(stdout).toContain(line)
  })
})
