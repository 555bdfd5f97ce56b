/**
 * Temporary folders in which the packed library is installed next to another tool, and commands that run in them. Nothing
 * is installed into the repository.
 */
import { execFile } from 'node:child_process'
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'

export interface Workspace extends AsyncDisposable {
  /** Where the packed library is. */
  readonly tarball: string
  readonly root: string
  /** A folder with these packages of npm, and the library and the program if `library` is true. */
  folder(name: string, packages: readonly string[], options?: FolderOptions): Promise<Folder>
}

export interface FolderOptions {
  /** Installs the library, and writes the program that uses it. Default true. */
  readonly library?: boolean
  /** The command that installs, with the packages after it. Default: that of npm. */
  readonly install?: readonly string[]
}

export interface Folder {
  readonly path: string
  /** Resolves to the output; rejects with the last lines of it. */
  run(command: string, args: readonly string[], env?: Readonly<Record<string, string>>): Promise<string>
  write(file: string, text: string): Promise<void>
  /** The version of a package that was installed here. */
  version(name: string): Promise<string>
}

const limitMs = 300_000
const npmInstall = ['npm', 'install', '--no-audit', '--no-fund', '--loglevel=error']
const programs = resolve(import.meta.dirname, 'programs')

export async function openWorkspace(): Promise<Workspace> {
  const root = await mkdtemp(join(tmpdir(), 'rillflow-compatibility-'))
  // Servers run under an account of their own.
  await chmod(root, 0o755)
  const repository = runIn(resolve(import.meta.dirname, '../..'))
  await repository('npm', ['run', '--silent', 'build'])
  const packed = JSON.parse(await repository('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', root]))
  const tarball = join(root, packed[0].filename)
  return {
    root,
    tarball,
    async folder(name, packages, { library = true, install = npmInstall } = {}) {
      const path = join(root, name)
      await mkdir(path)
      await writeFile(join(path, 'package.json'), JSON.stringify({ name: 'shop', private: true, type: 'module' }))
      await copyFile(join(programs, 'shop.mjs'), join(path, 'shop.mjs'))
      const run = runIn(path)
      const [command, ...args] = install as [string, ...string[]]
      const all = [...(library ? [tarball] : []), ...packages]
      if (all.length > 0) await run(command, [...args, ...all])
      return {
        path,
        run,
        write: (file, text) => writeFile(join(path, file), text),
        version: async each =>
          JSON.parse(await readFile(join(path, 'node_modules', each, 'package.json'), 'utf8')).version,
      }
    },
    [Symbol.asyncDispose]: () => rm(root, { recursive: true, force: true }),
  }
}

export function programText(name: string): Promise<string> {
  return readFile(join(programs, name), 'utf8')
}

function runIn(cwd: string): Folder['run'] {
  return async (command, args, more = {}) => {
    const { DATABASE_URL: _url, NODE_OPTIONS: _options, ...rest } = process.env
    const env = { ...rest, XDG_CACHE_HOME: join(tmpdir(), 'rillflow-compatibility-cache'), ...more }
    try {
      const { stdout } = await promisify(execFile)(command, args, { cwd, env, timeout: limitMs, maxBuffer: 2 ** 26 })
      return stdout
    } catch (error) {
      const { stdout = '', stderr = '', message } = error as Error & { stdout?: string; stderr?: string }
      const said = `${stdout}\n${stderr}`.split('\n').filter(line => line.trim() !== '')
      const reason = said.find(line => /error/i.test(line) && !/npm warn/i.test(line)) ?? said.at(-1) ?? message
      throw new Error(reason.trim().slice(0, 200), { cause: error })
    }
  }
}
