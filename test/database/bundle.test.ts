/** Programs that a bundler has made one file of: they load, and an embedded engine without its files says which it lacks. */
import { execFile } from 'node:child_process'
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { build } from 'esbuild'
import { afterAll, beforeAll, expect, test } from 'vitest'

const program = `
  import { defineSchedule, openStore } from './src/index.ts'
  const nightly = defineSchedule('nightly', { cron: '0 3 * * *', run() {} })
  openStore({ memory: true, schedules: [nightly] }).then(
    async store => {
      const { version } = await store.events.append('order-1', { type: 'OrderPlaced', data: {} })
      await store.close()
      console.log(JSON.stringify({ version }))
    },
    ({ code, file }) => console.log(JSON.stringify({ code, file })),
  )`

let folder: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'rf-bundle-'))
  const contents = { contents: program, resolveDir: resolve('.'), loader: 'ts' } as const
  const common = { stdin: contents, bundle: true, platform: 'node', target: 'node20', logLevel: 'silent' } as const
  await build({ ...common, format: 'esm', outfile: join(folder, 'shop.mjs') })
  await build({ ...common, format: 'cjs', outfile: join(folder, 'shop.cjs') })
})

afterAll(() => rm(folder, { recursive: true, force: true }))

async function answerOf(file: string): Promise<unknown> {
  const env = { ...process.env, XDG_CACHE_HOME: folder }
  const { stdout } = await promisify(execFile)(process.execPath, [file], { cwd: folder, env, timeout: 120_000 })
  return JSON.parse(stdout)
}

test('a bundle in the format of CommonJS loads, and its embedded engine says which file it misses', async () => {
  expect(await answerOf('shop.cjs')).toEqual({ code: 'engine_file_missing', file: join(folder, 'pglite.wasm') })
})

test('every entry of the package loads as a bundle in the format of CommonJS', async () => {
  const { exports } = JSON.parse(await readFile('package.json', 'utf8')) as { exports: Record<string, string> }
  const built = Object.values(exports).filter(path => path.endsWith('.js'))
  const entryPoints = built.map(path => path.replace('./dist/', 'src/').replace(/js$/, 'ts'))
  const common = { bundle: true, platform: 'node', target: 'node20', logLevel: 'silent' } as const
  await build({
    ...common,
    entryPoints,
    format: 'cjs',
    outbase: 'src',
    outdir: folder,
    outExtension: { '.js': '.cjs' },
  })

  const files = built.map(path => join(folder, path.replace('./dist/', '').replace(/js$/, 'cjs')))
  const all = `console.log(JSON.stringify(${JSON.stringify(files)}.map(file => Object.keys(require(file)).length > 0)))`
  await writeFile(join(folder, 'all.cjs'), all)

  expect(await answerOf('all.cjs')).toEqual(built.map(() => true))
})

test('a fully bundled embedded engine says which file it misses, and runs with its files next to the bundle', async () => {
  const without = await answerOf('shop.mjs')
  for (const name of ['pglite.wasm', 'initdb.wasm', 'pglite.data'])
    await copyFile(resolve('node_modules/@electric-sql/pglite/dist', name), join(folder, name))

  expect(without).toEqual({ code: 'engine_file_missing', file: join(folder, 'pglite.wasm') })
  expect(await answerOf('shop.mjs')).toEqual({ version: 1 })
})
