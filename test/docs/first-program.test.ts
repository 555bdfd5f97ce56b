/** The first program of the README runs as a new user runs it: saved as `first.mjs` in an empty project, again and again. */
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { copyStore, shortLived } from '../support/embedded.ts'
import { root } from './pages.ts'

const run = promisify(execFile)
const patienceMs = 600_000
let project: string
let program: string
let printed: string

beforeAll(async () => {
  const text = await readFile(join(root, 'README.md'), 'utf8')
  program = /```js\n(.*?)```/s.exec(text)![1]!
  printed = /```\n(1 .*?)```/s.exec(text)![1]!
  project = await mkdtemp(join(tmpdir(), 'rf-first-'))
  // As `npm init -y` writes it.
  const init = { name: 'first', version: '1.0.0', main: 'index.js', type: 'commonjs', license: 'ISC' }
  await writeFile(join(project, 'package.json'), JSON.stringify(init))
  await writeFile(join(project, 'first.mjs'), program)
  await mkdir(join(project, 'node_modules'))
  await symlink(root, join(project, 'node_modules', 'rillflow'))
  await copyStore(join(project, '.rillflow'))
}, patienceMs)
afterAll(() => rm(project, { recursive: true, force: true }))

test('it has twelve lines, and no syntax that only TypeScript or a newer Node knows', () => {
  expect(program.split('\n').filter(line => line.trim() !== '')).toHaveLength(12)
  expect(program).not.toMatch(/\busing\b|\bas\b|\w: \w+\)|</)
})

test('it prints what the README says, on the first run and on the second', { timeout: patienceMs }, async () => {
  for (const _ of [1, 2]) {
    const { stdout } = await run(process.execPath, [...shortLived, 'first.mjs'], { cwd: project, timeout: patienceMs })

    expect(stdout).toBe(printed)
  }
})

test('the README has at most 180 lines', async () => {
  const lines = (await readFile(join(root, 'README.md'), 'utf8')).trimEnd().split('\n')

  expect(lines.length).toBeLessThanOrEqual(180)
})
