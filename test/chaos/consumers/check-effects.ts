/** Effects that consumers have committed, as deliveries for the judge of histories: each event once, in order. */
import type { Delivery } from '../../../src/verify/append-history.ts'
import { deliveryProblems } from '../../../src/verify/check-appends.ts'

export interface Effect {
  readonly consumer: string
  readonly position: number | string
}

type Log = Parameters<typeof deliveryProblems>[1]

/** What is wrong with the effects, which are given in the order in which they were written. */
export function effectProblems(consumers: readonly string[], log: Log, effects: readonly Effect[]): string[] {
  const cursor = log.at(-1)?.position ?? 0
  return consumers.flatMap(name =>
    deliveryProblems({ name, from: 0, cursor, positions: positionsOf(effects, name) }, log),
  )
}

/**
 * The same of one consumer that was reset: its effects go from the beginning of the log to its end, and leave it only for
 * these resets, in their order. The first run ends where it is reset, the last one at the end of the log.
 */
export function resetProblems(
  { name, resets }: { readonly name: string; readonly resets: readonly number[] },
  log: Log,
  effects: readonly Effect[],
): string[] {
  const runs: number[][] = [[]]
  for (const position of positionsOf(effects, name)) {
    if (position <= (runs.at(-1)!.at(-1) ?? 0)) runs.push([])
    runs.at(-1)!.push(position)
  }
  const left = [...resets]
  const deliveries = runs.map((positions, at): Delivery => {
    // A reset to the place where the consumer is begins no run.
    while (at > 0 && left.length > 1 && nextOf(log, left[0]!) !== positions[0]) left.shift()
    const from = at === 0 ? 0 : (left.shift() ?? Number.NaN)
    const cursor = (at === runs.length - 1 ? log.at(-1)?.position : positions.at(-1)) ?? 0
    return { name: `${name}, run ${at + 1}`, from, cursor, positions }
  })
  const unasked = deliveries.filter(({ from }) => Number.isNaN(from)).map(({ name }) => `${name} was begun by no reset`)
  return [...unasked, ...deliveries.flatMap(delivery => deliveryProblems(delivery, log))]
}

function nextOf(log: Log, after: number): number | undefined {
  return log.find(({ position }) => position > after)?.position
}

function positionsOf(effects: readonly Effect[], name: string): number[] {
  return effects.filter(({ consumer }) => consumer === name).map(({ position }) => Number(position))
}
