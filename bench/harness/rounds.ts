/**
 * Fair comparison on a machine with other load: every contestant runs once per round, in shuffled order, and is compared
 * only with the others of the same round.
 */

/** The result of one contestant in one round. */
export interface Sample {
  /** Usually a rate; the bench defines its unit. */
  readonly value: number
  /** Milliseconds a call took. */
  readonly p50?: number | undefined
  readonly p99?: number | undefined
}

export interface Contestant<S extends Sample = Sample> {
  readonly name: string
  run(): Promise<S>
}

export interface RoundOptions {
  readonly rounds: number
  /** Restores the same starting point before each run. */
  before?(): Promise<void>
}

/** So many times the rounds of each bench: more short ones are worth more on a busy machine than a few long ones. */
const times = Number(process.env.RILLFLOW_BENCH_TIMES ?? 1)

export async function interleave<S extends Sample>(
  contestants: readonly Contestant<S>[],
  { rounds: given, before }: RoundOptions,
): Promise<Map<string, S[]>> {
  const rounds = given * times
  const samples = new Map<string, S[]>(contestants.map(({ name }) => [name, []]))
  for (let round = 0; round < rounds; round++)
    for (const contestant of shuffled(contestants)) {
      await before?.()
      samples.get(contestant.name)!.push(await contestant.run())
    }
  return samples
}

export interface Comparison {
  /** Medians over the rounds. */
  readonly ours: Sample
  readonly peer: Sample
  /** Above 1: ours is better. The median of the rounds' ratios, with their minimum and maximum. */
  readonly ratio: number
  readonly min: number
  readonly max: number
}

export function compare(
  ours: readonly Sample[],
  peer: readonly Sample[],
  better: 'more' | 'less' = 'more',
): Comparison {
  const all = ours.map(({ value }, round) => {
    const other = peer[round]!.value
    return better === 'more' ? value / other : other / value
  })
  // In a round without one call of one of them the machine was busy with something else.
  const told = all.filter(ratio => Number.isFinite(ratio) && ratio > 0)
  const ratios = told.length > 0 ? told : all
  const [min, max] = [Math.min(...ratios), Math.max(...ratios)]
  return { ours: middle(ours), peer: middle(peer), ratio: median(ratios), min, max }
}

/** Counts of things that should not happen. One is added to both sides, so that none against none is a ratio of 1. */
export function compareCounts(ours: number, peer: number): Comparison {
  const ratio = (peer + 1) / (ours + 1)
  return { ours: { value: ours }, peer: { value: peer }, ratio, min: ratio, max: ratio }
}

export function middle(samples: readonly Sample[]): Sample {
  const of = (pick: (sample: Sample) => number | undefined): number | undefined => {
    const values = samples.map(pick).filter(value => value !== undefined)
    return values.length === 0 ? undefined : median(values)
  }
  return { value: of(sample => sample.value)!, p50: of(sample => sample.p50), p99: of(sample => sample.p99) }
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const half = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2
}

/** The value below which the given share of the values lies. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = Float64Array.from(values).sort()
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}

function shuffled<T>(list: readonly T[]): T[] {
  return list
    .map(each => ({ each, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ each }) => each)
}
