/** `rillflow --help` against a Node that does nothing, from the start of a process to its end; and the files it loads. */

import { filesLoaded, nodeSays } from '../../test/support/fresh-node.ts'
import type { Bench } from '../harness/bench.ts'
import { compare, interleave } from '../harness/rounds.ts'

const lines = ['--help', 'events --help', 'status --help', 'bench --help']
const aimMs = 150
const program = 'dist/cli/cli.js'
const notForHelp = ['/dist/index.js', '/chunks/store-', '/node_modules/']

export const bench: Bench = {
  about: 'milliseconds from the start of a process to its end',
  async run({ quick, report }) {
    const contestants = [
      { name: 'bare Node', run: async () => ({ value: await timeOf(['--eval', '0']) }) },
      ...lines.map(line => ({ name: line, run: async () => ({ value: await timeOf([program, ...line.split(' ')]) }) })),
    ]
    await interleave(contestants, { rounds: 2 })
    const samples = await interleave(contestants, { rounds: quick ? 15 : 41 })
    const bare = samples.get('bare Node')!
    const results = lines.map(line => ({ line, ...compare(samples.get(line)!, bare, 'less') }))
    for (const { line, ...comparison } of results)
      report.result({ case: `rillflow ${line}`, peerName: 'bare Node', unit: 'ms', ...comparison })
    report.table('help')
    const slowest = Math.max(...results.map(({ ours }) => ours.value))
    report.say(`  the slowest of them takes ${Math.round(slowest)} ms; the aim is ${aimMs}`)
    for (const line of lines) report.say(`  rillflow ${line} loads ${(await loadedBy(line)).length} files`)
  },
}

async function timeOf(args: readonly string[]): Promise<number> {
  const started = performance.now()
  await nodeSays(args)
  return performance.now() - started
}

/** Fails if help loads a file that it does not need. */
async function loadedBy(line: string): Promise<string[]> {
  const files = await filesLoaded(`
    process.argv.splice(1, 0, '${program}', ...${JSON.stringify(line.split(' '))})
    process.stdout.write = () => true
    await import('./${program}')`)
  const needless = files.filter(file => notForHelp.some(each => file.includes(each)))
  if (needless.length > 0) throw new Error(`rillflow ${line} loads ${needless.join(', ')}`)
  return files
}
