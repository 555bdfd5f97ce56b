/** `import 'rillflow'` against `import 'pg'`, each in a fresh process; and what the import loads. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { Bench } from '../bench.ts'
import { compare, interleave } from '../rounds.ts'

const root = `${import.meta.dirname}/../..`
const notYet = ['pg', '@electric-sql/pglite', 'pg-copy-streams']

export const bench: Bench = {
  about: 'milliseconds from asking for the module to having it, in fresh Node processes',
  async run({ quick, report }) {
    const contestants = ['rillflow', 'pg'].map(name => ({ name, run: async () => ({ value: await importTime(name) }) }))
    await interleave(contestants, { rounds: 2 })
    const samples = await interleave(contestants, { rounds: quick ? 15 : 41 })
    const [ours, driver] = [samples.get('rillflow')!, samples.get('pg')!]
    report.result({ case: 'time', peerName: 'driver', unit: 'ms', ...compare(ours, driver, 'less') })
    report.table('import')
    const files = await filesLoaded('rillflow')
    const packages = notYet.filter(name => files.some(file => file.includes(`/node_modules/${name}/`)))
    report.say(
      `  import 'rillflow' loads ${files.length} files; of ${notYet.join(', ')}: ${packages.join(', ') || 'none'}`,
    )
    if (packages.length > 0) throw new Error(`import 'rillflow' loads ${packages.join(', ')}`)
  },
}

async function importTime(name: string): Promise<number> {
  const code = `const started = performance.now(); await import('${name}'); console.log(performance.now() - started)`
  return Number(await nodeSays(['--input-type=module', '--eval', code]))
}

/** Asks the loader, which sees every module before it is run. */
async function filesLoaded(name: string): Promise<string[]> {
  const hooks = `
    import { writeSync } from 'node:fs'
    export async function load(url, context, next) {
      if (url.startsWith('file:')) writeSync(1, url + '\\n')
      return next(url, context)
    }`
  const code = `
    import { register } from 'node:module'
    register(${JSON.stringify(`data:text/javascript,${encodeURIComponent(hooks)}`)})
    await import('${name}')`
  return (await nodeSays(['--input-type=module', '--eval', code])).trim().split('\n')
}

/** From the root, where the package is known by its name. */
async function nodeSays(args: string[]): Promise<string> {
  const { NODE_OPTIONS: _, ...env } = process.env
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root, env, timeout: 60_000 })
  return stdout
}
