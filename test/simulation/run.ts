/**
 * Many seeds: `npm run simulate -- --seeds 1000`, with `--from` another first one than 1.
 *
 * It prints a digest of all traces, by which two runs of the same seeds on the same code can be compared.
 *
 * A plan that fails is made smaller, twice checked, and written to `test/simulation/failed/`, whose plans are run by
 * `simulation.test.ts` from then on.
 */
import { createHash } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { type Plan, planOf, shrink } from './plan.ts'
import { simulate } from './simulate.ts'

const { values } = parseArgs({
  options: { seeds: { type: 'string', default: '100' }, from: { type: 'string', default: '1' } },
})
const [seeds, from] = [Number(values.seeds), Number(values.from)]
if (!Number.isInteger(seeds) || !Number.isInteger(from) || seeds < 1 || from < 1)
  throw new Error('Give whole numbers from 1: npm run simulate -- --seeds 1000 --from 1')

let [steps, failed] = [0, 0]
const traces = createHash('sha256')
for (let seed = from; seed < from + seeds; seed++) {
  const plan = planOf(seed)
  const { problems, trace } = await simulate(plan)
  steps += trace.length
  traces.update(trace.join('\n'))
  if (problems.length > 0) await keep(plan, problems)
  if ((seed - from + 1) % 50 === 0)
    console.log(`${seed - from + 1} of ${seeds} seeds, ${steps} steps, ${failed} failed`)
}
console.log(
  `${seeds} seeds from ${from}, ${steps} steps: ${failed === 0 ? 'everything holds' : `${failed} failed`} (traces ${traces.digest('hex').slice(0, 16)})`,
)
process.exit(failed === 0 ? 0 : 1)

async function keep(plan: Plan, problems: readonly string[]): Promise<void> {
  failed++
  console.log(`Seed ${plan.seed} failed:\n  ${problems.join('\n  ')}`)
  const smallest = await shrink(plan, async each => (await simulate(each)).problems.length > 0)
  const folder = new URL('./failed/', import.meta.url)
  await mkdir(folder, { recursive: true })
  const path = new URL(`seed-${plan.seed}.json`, folder)
  await writeFile(path, `${JSON.stringify(smallest, undefined, 2)}\n`)
  console.log(`  Its smallest plan is in ${path.pathname}`)
}
