/**
 * The parts that a runner runs. Each part of the store with code to run registers a `Runnable`; so nothing in this
 * folder knows projections, subscriptions or handlers.
 *
 *     runner ──► runnable.start(context) ──► running part ── leased(): consumers whose leases the runner holds for it
 *                                                        └── stop(cutOff)
 */
import type { Definition } from '../../core/definition.ts'
import { InvalidOption } from '../../core/errors.ts'
import { nearestName } from '../../core/name.ts'
import { describe } from '../../core/options.ts'
import type { ConsumerKind, From } from '../consumer.ts'
import type { Consumers } from '../consumers.ts'
import { ConsumerNotFound } from '../errors.ts'
import type { Lease } from '../row.ts'
import { follow } from '../run/follow.ts'
import type { ConcurrencyShare } from './concurrency.ts'
import type { Serves } from './row.ts'

/** The kinds that `only` can name. */
export const runnableKinds = [
  'projections',
  'processors',
  'subscriptions',
  'snapshots',
  'handlers',
  'schedules',
  'upkeep',
] as const

export type RunnableKind = (typeof runnableKinds)[number]

export interface Runnable {
  /** The kinds it runs: one that is asked for none of them is not started. */
  readonly kinds: readonly RunnableKind[]
  /** The names of the definitions of one kind that it can run, for `only`. */
  names(kind: RunnableKind): readonly string[]
  /** Runs the wanted definitions until it is stopped. Resolves when it runs. */
  start(context: RunContext): Promise<RunningPart>
}

/** A part at work in one runner. */
export interface RunningPart {
  /** The consumers whose leases the runner should hold, as of now; asked with every heartbeat. */
  leased?(): readonly Leased[]
  /** Lets running work complete until `cutOff` aborts, then cuts it off. */
  stop(cutOff: AbortSignal): Promise<void>
}

/** The runner, as its parts see it. */
export interface RunContext {
  /** Its id: the owner of its leases, and of the executions of its handlers. */
  readonly id: string
  readonly name: string | undefined
  /** How long the runner counts as alive without a heartbeat. */
  readonly leaseMs: number
  /** How long leases of consumers last; undefined: as each says. */
  readonly consumerLeaseMs: number | undefined
  /** The most handlers at the same time; undefined: as the part says. */
  readonly concurrency: number | undefined
  /** Its part of a limit that it shares with the runners of other stores. */
  readonly share: ConcurrencyShare | undefined
  /** How often a part looks for work without a hint. */
  readonly pollMs: number
  /** Stores in the row of the runner which handlers it runs; without it no execution can be claimed for it. */
  serve(serves: Serves): Promise<void>
  /** Whether this definition is to be run. */
  isWanted(kind: RunnableKind, name: string): boolean
  /** `leased` may return other consumers from now on. */
  refresh(): void
  /** A definition has failed for good. */
  onFailure(name: string, error: unknown): void
}

/** A consumer that a runner can run: its row, and the code that works under its lease. */
export interface Leased {
  /** The name of the row. */
  readonly name: string
  readonly kind: ConsumerKind
  readonly from: From
  /** The tables of a projection. */
  readonly tables?: readonly string[] | undefined
  readonly leaseMs: number
  /** True: its row is made, and removed, by another part. One that is gone stays away. */
  readonly isMade?: boolean | undefined
  /** Works under the lease; returns soon after `drain` aborts, at once after `lost` does. If it returns, it is run again. */
  run(held: HeldLease): Promise<void>
}

/** A lease that the runner keeps renewed while `run` works under it. */
export interface HeldLease {
  readonly lease: Lease
  /** Aborts when the lease is to be released: complete the running work, then return. */
  readonly drain: AbortSignal
  /** Aborts when the lease is lost: nothing may be done for the consumer from then on. */
  readonly lost: AbortSignal
  /** Calls back when the retry of a dead letter of this consumer is due; the function returned ends that. */
  onRequest(listener: () => void): () => void
  /**
   * Runs work that waits for nothing but the database, such as reading a page. If it does not end within four leases, the
   * lease is no longer renewed: a holder that makes no progress must not keep others out. Rejects when the lease is lost.
   */
  limited<T>(work: () => Promise<T>): Promise<T>
}

/** The consumers of the store, by kind: a row each. */
export function runnableConsumers(consumers: Consumers): Runnable[] {
  const kindOf = { projections: 'projection', processors: 'processor', snapshots: 'snapshotter' } as const
  return Object.entries(kindOf).map(([runnable, kind]) => {
    const all = (): ReturnType<Consumers['list']> => consumers.list().filter(each => each.kind === kind)
    return {
      kinds: [runnable as RunnableKind],
      names: () => all().map(each => each.name),
      async start({ isWanted, refresh, consumerLeaseMs }) {
        const stopListening = consumers.onChange(refresh)
        const known = new WeakMap<object, Leased>()
        return {
          leased: () =>
            all()
              .filter(each => isWanted(runnable as RunnableKind, each.name))
              .map(each => {
                // The same object each time, so that a consumer that was registered anew is seen as another one.
                const leased = known.get(each) ?? leasedConsumer(consumers, each.name, consumerLeaseMs)
                known.set(each, leased)
                return leased
              }),
          stop: async () => stopListening(),
        }
      },
    }
  })
}

/** A registered consumer as a runner runs it: if its policy stops it, it is paused, and no runner starts it again. */
export function leasedConsumer(consumers: Consumers, name: string, leaseMs?: number): Leased {
  const found = consumers.find(name)
  const consumer = { ...found, leaseMs: leaseMs ?? found.leaseMs, pausesWhenStopped: true }
  const { kind, from, tables } = consumer
  return { name, kind, from, tables, leaseMs: consumer.leaseMs, run: held => follow(consumers, consumer, held) }
}

/** A text names a kind; a definition stands for itself. */
export type Only = readonly (RunnableKind | Definition)[]

/** Refuses definitions that cannot be run; returns which ones are wanted. */
export function wantedBy(only: Only | undefined, runnables: readonly Runnable[]): RunContext['isWanted'] {
  if (only === undefined) return () => true
  if (!Array.isArray(only)) refuse(`has ${describe(only)} as "only". It must be a list of kinds and definitions.`)
  const list: Only = only
  const wholeKinds = new Set<RunnableKind>()
  const names = new Set<string>()
  for (const each of list) {
    if (typeof each === 'string') {
      if (!runnableKinds.includes(each)) {
        const nearest = nearestName(each, runnableKinds)
        refuse(
          `cannot run ${describe(each)}. ${nearest === undefined ? `The kinds are ${runnableKinds.join(', ')}.` : `Did you mean "${nearest}"?`}`,
        )
      }
      wholeKinds.add(each)
      continue
    }
    const kind = runnableKindOf(each)
    const known = runnables.flatMap(runnable => (runnable.kinds.includes(kind) ? runnable.names(kind) : []))
    if (!known.includes(each.name))
      throw new ConsumerNotFound({ consumer: each.name, nearest: nearestName(each.name, known) })
    names.add(`${kind} ${each.name}`)
  }
  return (kind, name) => wholeKinds.has(kind) || names.has(`${kind} ${name}`)
}

function runnableKindOf({ kind, name }: Definition): RunnableKind {
  const byKind: Readonly<Record<string, RunnableKind>> = {
    projection: 'projections',
    processor: 'processors',
    subscription: 'subscriptions',
    snapshotter: 'snapshots',
    handler: 'handlers',
    join: 'handlers',
    undo: 'handlers',
    schedule: 'schedules',
  }
  return byKind[kind] ?? refuse(`cannot run "${name}": nothing is run for a definition of kind ${describe(kind)}.`)
}

function refuse(reason: string): never {
  throw new InvalidOption({ option: 'only', reason: `A runner ${reason}` })
}
