/** `import 'rillflow'` against `import 'pg'`, each in a fresh process; and the files it loads. */

import { filesLoaded, nodeSays } from '../../test/support/fresh-node.ts'
import type { Bench } from '../harness/bench.ts'
import { compare, interleave } from '../harness/rounds.ts'

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
    const files = await filesLoaded(`await import('rillflow')`)
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
