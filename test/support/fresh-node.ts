/** Fresh Node processes in the root of the package, where it can be imported by its name: their output, and the files they load. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const root = `${import.meta.dirname}/../..`

export async function nodeSays(args: readonly string[], more: Record<string, string> = {}): Promise<string> {
  const { NODE_OPTIONS: _, ...own } = process.env
  const env = { ...own, ...more }
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root, env, timeout: 110_000 })
  return stdout
}

/** Evaluates the code with a loader hook that prints every loaded file. The code itself must print nothing. */
export async function filesLoaded(code: string, env: Record<string, string> = {}): Promise<string[]> {
  const hooks = `
    import { writeSync } from 'node:fs'
    export async function load(url, context, next) {
      if (url.startsWith('file:')) writeSync(1, url + '\\n')
      return next(url, context)
    }`
  const registered = `
    import { register } from 'node:module'
    register(${JSON.stringify(`data:text/javascript,${encodeURIComponent(hooks)}`)})
    ${code}`
  return (await nodeSays(['--input-type=module', '--eval', registered], env)).trim().split('\n')
}
