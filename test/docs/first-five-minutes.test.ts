/**
 * The first five minutes are run as written: each typed line is run, and its output is compared with the text below it.
 * Times, ids, numbers and random choices are not compared, and `…` stands for any lines.
 *
 * It is walked twice: in a clone, and in an empty folder in which the packed package is installed, where its last paragraph
 * says that the command is `npx rillflow`. Three things differ from a user's: the clone is this one, already built; `curl` is
 * done here; and `npm start` is replaced by the command that it runs after the build. In the empty folder the dependencies
 * are links to those of this one.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { waitUntil } from '../support/wait.ts'
import { root } from './pages.ts'

const patienceMs = 600_000
const start = 'node dist/cli/cli.js dev'
let clone: string
/** The program, as it is called there. */
let program: string
let shop: Running | undefined
const left = new Set<ChildProcess>()
const folders: string[] = []

afterAll(async () => {
  for (const child of left) child.kill('SIGKILL')
  for (const folder of folders) await rm(folder, { recursive: true, force: true })
})

async function enterClone(): Promise<void> {
  clone = await freshFolder()
  program = 'node dist/cli/cli.js'
  for (const name of ['dist', 'node_modules']) await symlink(join(root, name), join(clone, name))
  await copyFile(join(root, 'package.json'), join(clone, 'package.json'))
}

async function enterEmptyFolder(): Promise<void> {
  clone = await freshFolder()
  // It is what `npx rillflow` runs; a signal reaches it as from a terminal.
  program = 'node_modules/.bin/rillflow'
  const run = promisify(execFile)
  const modules = join(clone, 'node_modules')
  await mkdir(join(modules, '.bin'), { recursive: true })
  await writeFile(join(clone, 'package.json'), JSON.stringify({ name: 'mine', private: true, type: 'module' }))
  const pack = ['pack', '--json', '--ignore-scripts', '--pack-destination', clone]
  const [{ filename }] = JSON.parse((await run('npm', pack, { cwd: root, maxBuffer: 2 ** 26 })).stdout)
  await run('tar', ['-xzf', join(clone, filename), '-C', modules])
  for (const name of await readdir(join(root, 'node_modules')))
    if (!/^(\.|rillflow$)/.test(name)) await symlink(join(root, 'node_modules', name), join(modules, name))
  await run('mv', [join(modules, 'package'), join(modules, 'rillflow')])
  for (const [name, target] of [
    ['rillflow', '../rillflow/dist/cli/cli.js'],
    ['tsx', '../tsx/dist/cli.mjs'],
  ] as const)
    await symlink(target, join(modules, '.bin', name))
  await run('chmod', ['+x', join(modules, 'rillflow/dist/cli/cli.js')])
}

async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'rf-clone-'))
  folders.push(folder)
  return folder
}

test('npm start builds and runs the commands of the walk', async () => {
  const { scripts } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))

  expect(scripts.start).toBe(`npm run --silent build && ${start}`)
})

test.each([
  ['in a clone', enterClone],
  ['in an empty folder with the packed package', enterEmptyFolder],
])('the first five minutes work as written %s', { timeout: patienceMs }, async (_, enter) => {
  await enter()
  const text = await readFile(join(root, 'docs/first-five-minutes.md'), 'utf8')
  const typed: string[] = []

  for (const [, before, language, block] of text.matchAll(/(.*?)^```(\w*)\n(.*?)^```/gms)) {
    const reported = before!.includes('Ctrl-C') ? await end() : ''
    if (language === 'ts') await writeFile(join(clone, 'mine.ts'), block!)
    else
      for (const step of stepsOf(block!)) {
        await walk(step, reported)
        if (step.typed !== undefined) typed.push(`$ ${step.typed}`)
      }
  }

  expect(typed).toEqual(text.match(/^\$ .*$/gm))
  expect(shop).toBeUndefined()
})

/** A typed line, and the text below it; without a typed line, the last output of the first terminal. */
interface Step {
  readonly typed: string | undefined
  readonly printed: readonly string[]
}

function stepsOf(block: string): Step[] {
  const [first, ...typed] = `\n${block.trimEnd()}`.split('\n$ ')
  const steps = typed.map(each => each.split('\n')).map(([line, ...printed]) => ({ typed: line!, printed }))
  return first === '' ? steps : [{ typed: undefined, printed: first!.trim().split('\n') }, ...steps]
}

async function walk({ typed, printed }: Step, reported: string): Promise<void> {
  if (typed === undefined) expectPrinted(reported, printed, 'Ctrl-C')
  else if (typed.startsWith('git clone')) expect(printed).toEqual([])
  else if (/^(npm install && )?npm start$/.test(typed)) await open(printed)
  else expectPrinted(typed.startsWith('curl') ? await fetched(typed) : await ran(typed), printed, typed)
}

/** The output there comes at its own pace: each written line is seen sooner or later. */
async function open(printed: readonly string[]): Promise<void> {
  const running = run(`${program} dev`)
  shop = running
  const missing = (): string[] => {
    const seen = new Set(linesOf(running.printed()))
    return printed.filter(line => line !== '…' && !seen.has(canonical(line)))
  }
  await waitUntil(() => missing().length === 0, { deadlineMs: 120_000, what: 'everything that is written' }).catch(
    error => {
      throw new Error(`never seen: ${missing().join('\n')}\nin: ${running.printed()}`, { cause: error })
    },
  )
}

async function end(): Promise<string> {
  const from = shop!.printed().length
  shop!.child.kill('SIGINT')
  const { code, printed } = await shop!.ended
  shop = undefined
  expect(code).toBe(0)
  // Running work continues for a moment, and is printed.
  const isLive = (line: string): boolean => /^\s*(#\d+|!|–) /.test(line)
  return printed
    .slice(from)
    .split('\n')
    .filter(line => !isLive(line))
    .join('\n')
}

async function ran(typed: string): Promise<string> {
  return (await run(typed.replace('node dist/cli/cli.js', program)).ended).printed
}

/** `curl -s ADDRESS | grep WORD` */
async function fetched(typed: string): Promise<string> {
  const [, address, word = ''] = /^curl -s (\S+)(?: \| grep (\S+))?$/.exec(typed)!
  // The usual port may be in use.
  const [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(shop!.printed())!
  let body = ''
  // On a busy machine a database that answers late counts as unavailable.
  await waitUntil(async () => {
    const response = await fetch(address!.replace(/^http:\/\/127\.0\.0\.1:\d+/, url))
    body = await response.text()
    return response.ok && !body.includes('rillflow_database_reachable 0')
  })
  return body
    .split('\n')
    .filter(line => line.includes(word))
    .join('\n')
}

interface Running {
  readonly child: ChildProcess
  printed(): string
  readonly ended: Promise<{ code: number | null; printed: string }>
}

/** In a shell, as a user does. */
function run(line: string): Running {
  const own = Object.entries(process.env).filter(([name]) => !/^(DATABASE_URL|RILLFLOW_|FORCE_COLOR|NODE_)/.test(name))
  const env = { ...Object.fromEntries(own), LANG: 'C.UTF-8', NO_COLOR: '1' }
  const child = spawn('sh', ['-c', `exec ${line}`], { cwd: clone, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let printed = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', chunk => {
      printed += chunk
    })
  left.add(child)
  const ended = new Promise<{ code: number | null; printed: string }>(done =>
    child.on('close', code => {
      left.delete(child)
      done({ code, printed })
    }),
  )
  return { child, printed: () => printed, ended }
}

function expectPrinted(actual: string, written: readonly string[], typed: string): void {
  const pattern = written.map(line => (line === '…' ? '(?:.*\n)*' : `${escaped(canonical(line))}\n`)).join('')
  const seen = linesOf(actual)
    .map(line => `${line}\n`)
    .join('')
  expect(seen, typed).toMatch(new RegExp(`^${pattern}$`))
}

function linesOf(text: string): string[] {
  return text
    .replace(/\n+$/, '')
    .split('\n')
    .filter(line => !line.startsWith('npm warn'))
    .map(canonical)
}

/** Without values that differ from run to run, such as whether a consumer has seen the last event, and its delay. */
function canonical(line: string): string {
  return line
    .replaceAll(/\{"[^{}]*\}$/g, json => `{${Object.keys(JSON.parse(json)).join()}}`)
    .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'ID')
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME')
    .replaceAll(/\b\d\d:\d\d:\d\d\b/g, 'TIME')
    .replaceAll(/\bnow(?=$|\)| {2})|\b[\ddhms.]+ ago\b/g, 'AGO')
    .replaceAll(/\border-(?!mine)\w+@\d+/g, 'order-NAME@N')
    .replaceAll(/\b(the card of) \w+/g, '$1 NAME')
    .replaceAll(/\b\d+ \([\ddhms.]+\)/g, 'N')
    .replaceAll(/\b\d+(\.\d+)?(ms|s)?\b/g, 'N')
    .replaceAll(/\b(workflow|execution|runner|worker|dead letter|position|order)s\b/g, '$1')
    .replaceAll(/\s+/g, ' ')
    .trim()
}

function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
