/**
 * `npm run bench -- NAME [--quick] [--json]`: installs the peers, builds the package and runs one bench against it.
 * `npm run bench -- page`: runs those of the performance page, and writes its table and its plots (`harness/page.ts`).
 *
 * Nothing of the peers or of the package is imported here: on a fresh clone neither is there yet. A bench is one file in
 * `benches/`, named after itself, that exports `bench`.
 */
import { execFileSync } from 'node:child_process'
import { readdirSync, statSync } from 'node:fs'
import { parseArgs } from 'node:util'
import type { Bench } from './harness/bench.ts'
import { renderPage, runPage } from './harness/page.ts'
import { openReport } from './harness/report.ts'

const here = import.meta.dirname
const names = readdirSync(`${here}/benches`).map(file => file.replace(/\.ts$/, ''))

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    only: { type: 'string' },
    render: { type: 'boolean', default: false },
  },
})
const name = positionals[0]
if (positionals.length !== 1 || name === undefined || !(name === 'page' || names.includes(name))) {
  const usage =
    'npm run bench -- NAME [--quick] [--json] [--only PART]\n       npm run bench -- page [--only NAME,…] [--render]'
  console.error(`Usage: ${usage}\nNAME is one of: ${names.join(', ')}`)
  process.exit(2)
}
if (name === 'page' && values.render) {
  renderPage()
  process.exit(0)
}

if (changedAt('node_modules/.package-lock.json') < changedAt('package-lock.json')) {
  console.error('bench: installing its own dependencies (npm ci in bench/) …')
  npm(['ci', '--no-audit', '--no-fund'], here)
}
if (process.env.RILLFLOW_BENCH_BUILT === undefined) {
  console.error('bench: building the package …')
  npm(['run', '--silent', 'build'], `${here}/..`)
}

if (name === 'page') {
  runPage(values.only)
  process.exit(0)
}
// A connection that a peer leaves open ends with the server; the results are complete by then.
process.on('uncaughtException', error => {
  if ((error as { code?: unknown }).code !== '57P01') throw error
})
const { bench } = (await import(`./benches/${name}.ts`)) as { bench: Bench }
const report = openReport(name, values)
report.say(`${name}: ${bench.about}`)
await bench.run({ quick: values.quick, only: values.only, report })
report.close()

/** Their words go to stderr: stdout is for results. */
function npm(args: string[], cwd: string): void {
  const program = process.env.npm_execpath
  const command: [string, string[]] = program === undefined ? ['npm', args] : [process.execPath, [program, ...args]]
  execFileSync(...command, { cwd, stdio: ['ignore', 2, 2] })
}

function changedAt(file: string): number {
  return statSync(`${here}/${file}`, { throwIfNoEntry: false })?.mtimeMs ?? 0
}
