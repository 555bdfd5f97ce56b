/**
 * Runs lines of the program one after the other in one process, because starting a process takes longer than the command,
 * above all with the embedded engine.
 *
 *     const program = startOneProcess({ cwd, env })
 *     const { code, stdout, stderr } = await program.run(['events', 'tail'])
 *
 * A line has ended when nothing is open that would keep a process alive. The same file is the program of the child.
 */
import { once } from 'node:events'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { forkProgram } from '../support/program.ts'

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface OneProcess {
  run(words: readonly string[]): Promise<Ended>
  kill(): void
}

export interface OneProcessOptions {
  readonly cwd: string
  readonly env: Readonly<Record<string, string | undefined>>
  /** The program's file. */
  readonly file: string
}

export function startOneProcess(options: OneProcessOptions): OneProcess {
  const child = forkProgram(import.meta.url)
  child.send(options)
  const gone = new AbortController()
  child.on('exit', code => gone.abort(new Error(`the process that runs the commands has ended with ${code}`)))
  let before: Promise<unknown> = Promise.resolve()
  const run = async (words: readonly string[]): Promise<Ended> => {
    await before
    child.send(words)
    const [ended] = await once(child, 'message', { signal: gone.signal })
    return ended
  }
  return {
    run(words) {
      const ended = run(words)
      before = ended.catch(() => {})
      return ended
    },
    kill: () => void child.kill('SIGKILL'),
  }
}

let count = 0
let atRest: readonly string[] = []
/** A line reaches this limit only if it fails. */
const closingMs = 30_000

/** The file runs the line when it is imported. Each import has another address, so it runs again; its imports stay loaded. */
async function runLine(file: string, words: readonly string[]): Promise<Ended> {
  const written = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const)
    process[name].write = chunk => {
      written[name] += chunk
      return true
    }
  process.argv = [process.execPath, file, ...words]
  process.exitCode = undefined
  const { href } = pathToFileURL(file)
  const again = `${href}?${count++}`
  await import(again)
  const code = Number(process.exitCode ?? 0)
  const deadline = Date.now() + closingMs
  while (leftOpen().length > 0) {
    if (Date.now() > deadline) return { code: null, stdout: '', stderr: `left open: ${leftOpen()}` }
    await new Promise(setImmediate)
  }
  return { code, ...written }
}

/** Resources that keep the process alive and that did not exist before the first line. */
function leftOpen(): string[] {
  const known = [...atRest]
  return process.getActiveResourcesInfo().filter(kind => {
    const at = known.indexOf(kind)
    if (at >= 0) known.splice(at, 1)
    return at < 0 && kind !== 'Immediate'
  })
}

if (process.send !== undefined && process.argv[1] === fileURLToPath(import.meta.url)) {
  // These streams exist from now on, so that none of them counts as opened by a line.
  for (const stream of [process.stdin, process.stdout, process.stderr]) stream.setMaxListeners(0)
  process.on('disconnect', () => process.exit())
  process.once('message', ({ cwd, env, file }: OneProcessOptions) => {
    process.chdir(cwd)
    process.env = { ...env }
    atRest = process.getActiveResourcesInfo()
    process.on('message', async (words: readonly string[]) => process.send!(await runLine(file, words)))
  })
}
