/** A plan: everything that a run of the simulation depends on. It is made from a seed, and made smaller when it fails. */
import { pick, type Random, seeded, times } from '../chaos/seeded-random.ts'
import type { Fault } from './world.ts'

export interface Plan {
  /** Decides what goes on next, and every draw of the library. */
  readonly seed: number
  readonly processes: number
  readonly tasks: readonly Task[]
  readonly faults: readonly Fault[]
}

/** One thing that a client of a process does; again, with the same key, by the next process after a crash. */
export type Task =
  | { readonly kind: 'place'; readonly order: number; readonly afterMs: number }
  | { readonly kind: 'cancel'; readonly order: number; readonly afterMs: number; readonly compensate: boolean }
  | { readonly kind: 'append'; readonly stream: number; readonly afterMs: number; readonly isExact: boolean }

const maxFaultStep = 600

export function planOf(seed: number): Plan {
  const random = seeded(seed * 7919 + 1)
  const upTo = (max: number): number => Math.floor(random() * max)
  const orders = times(1 + upTo(2), () => upTo(30)).filter((order, at, all) => all.indexOf(order) === at)
  const cancelled = orders.filter(() => random() < 0.2)
  return {
    seed,
    processes: 2 + (random() < 0.3 ? 1 : 0),
    tasks: [
      ...orders.map(order => ({ kind: 'place' as const, order, afterMs: upTo(3_000) })),
      ...cancelled.map(order => ({
        ...{ kind: 'cancel' as const, order, afterMs: 1_000 + upTo(4_000), compensate: random() < 0.5 },
      })),
      ...times(1 + upTo(4), () => ({
        ...{ kind: 'append' as const, stream: upTo(2), afterMs: upTo(5_000), isExact: random() < 0.6 },
      })),
    ],
    faults: times(upTo(7), () => faultOf(random)),
  }
}

function faultOf(random: Random): Fault {
  const kind = pick(random, [
    'crash',
    'freeze',
    'refuse',
    'lose',
    'lose',
    'delay',
    'delay',
    'repeatHint',
    'dropHint',
  ] as const)
  // Half of them are longer than a lease.
  const ms = Math.floor(random() < 0.5 ? random() * 4_000 : 12_000 + random() * 15_000)
  return { step: 1 + Math.floor(random() * maxFaultStep), kind, ms }
}

/** Smaller plans of the same kind, the greatest steps first. */
export function* smaller(plan: Plan): Generator<Plan> {
  const { faults, tasks, processes } = plan
  if (faults.length > 1) {
    yield { ...plan, faults: faults.slice(0, faults.length >> 1) }
    yield { ...plan, faults: faults.slice(faults.length >> 1) }
  }
  for (const fault of faults) yield { ...plan, faults: faults.filter(each => each !== fault) }
  for (const task of tasks) yield { ...plan, tasks: tasks.filter(each => each !== task) }
  if (processes > 1) yield { ...plan, processes: processes - 1 }
  for (const fault of faults)
    if (fault.ms > 1_000)
      yield { ...plan, faults: faults.map(each => (each === fault ? { ...each, ms: each.ms >> 1 } : each)) }
}

/** The smallest plan that still fails, found one step at a time. `maxTries` limits the runs. */
export async function shrink(plan: Plan, fails: (plan: Plan) => Promise<boolean>, maxTries = 60): Promise<Plan> {
  let [smallest, tries] = [plan, 0]
  for (let isSmaller = true; isSmaller; ) {
    isSmaller = false
    for (const next of smaller(smallest)) {
      if (++tries > maxTries) return smallest
      if (!(await fails(next))) continue
      smallest = next
      isSmaller = true
      break
    }
  }
  return smallest
}
