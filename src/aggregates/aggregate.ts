/**
 * An aggregate: a decider, or a class, under the name of the category whose streams it folds.
 *
 *     const Order = aggregate('order', { ...orderDecider, snapshotEvery: 100, validate: order => … })
 *     const Order = aggregate('order', { class: OrderClass })
 *     const Order = aggregate('order', { projection: orders, decide: (command, order) => … })
 *
 * Its id is the name of its stream, `order-42`; `Order.stream('42')` makes one.
 */
import { InvalidName, InvalidOption } from '../core/errors.ts'
import { category, checkName } from '../core/name.ts'
import { checkWhole } from '../core/whole.ts'
import type { AnyEvent, Decider } from './decider.ts'
import { deciderOfProjection, type FoldingProjection, type ReadKept } from './projected.ts'

/** All that is known of one kind of stream. (Methods, so that one of a special kind fits where any will do.) */
export interface Aggregate<State = unknown, Command = unknown, Event extends AnyEvent = AnyEvent>
  extends Decider<State, Command, Event> {
  /** The category of its streams. */
  readonly name: string
  /** A snapshot is written by each commit that reaches or passes a multiple of it; undefined: by none. */
  readonly snapshotEvery: number | undefined
  /** Snapshots of another one are not used. */
  readonly stateVersion: number
  /** How many recent states are kept in memory. */
  readonly cacheSize: number
  /** Why this state may not be; undefined if it may. */
  validate(state: State): string | undefined
  /** 'plain' where a state is its own snapshot, 'none' where it cannot have one. */
  readonly snapshots: SnapshotForm<State> | 'plain' | 'none'
  /** Reads what a projection keeps of a stream, as far as it has come; undefined: the state is kept by none. */
  readonly kept: ReadKept | undefined
  /** Whether it is folded by the code of a projection. */
  readonly isProjected: boolean
  /** The stream of an id: `order-42` for `42`. */
  stream(id: string): string
}

/** How a state goes into a snapshot and comes back. */
export interface SnapshotForm<State> {
  write(state: State): unknown
  read(snapshot: unknown): State
}

export interface AggregateOptions<State> {
  /** Write a snapshot when a commit reaches or passes a multiple of this version. Default: never. */
  readonly snapshotEvery?: number | undefined
  /** Raise it when `evolve` or the shape of the state changes: older snapshots are then discarded. Default 1. */
  readonly stateVersion?: number | undefined
  /** Looks at the state that a commit would lead to. It throws, or returns why not, to refuse the commit. */
  // biome-ignore lint/suspicious/noConfusingVoidType: a function that only throws returns nothing
  readonly validate?: ((state: State) => string | undefined | void) | undefined
  /** How many recent states are kept in memory, at most 64 KiB each; 0 for none. Default 256. */
  readonly cacheSize?: number | undefined
}

export interface DeciderOptions<State> extends AggregateOptions<State> {
  /** A state that is not plain JSON, as plain JSON. Given together with `fromSnapshot`. */
  readonly toSnapshot?: ((state: State) => unknown) | undefined
  readonly fromSnapshot?: ((snapshot: unknown) => State) | undefined
}

/** A class whose instances fold their stream into themselves. Without `snapshot` and `hydrate` it has no snapshots. */
export interface AggregateInstance<Event extends AnyEvent = never> {
  /** Changes itself as the event says, and does nothing else. */
  apply(event: Event): unknown
  snapshot?(): unknown
  /** Called on a new instance, with what `snapshot` gave. */
  hydrate?(snapshot: unknown): unknown
}

/** The events that the `apply` of a class takes. */
export type AppliedEvent<State extends AggregateInstance> = Parameters<State['apply']>[0]

/** A projection whose document is the state; see `projected.ts`. */
export interface ProjectedDefinition<Doc, Command, Event extends AnyEvent>
  extends Pick<AggregateOptions<Doc | null>, 'validate'> {
  readonly projection: FoldingProjection<Doc>
  readonly decide: (command: Command, document: NoInfer<Doc> | null) => Event | readonly Event[]
}

/** What is asked of an aggregate that is a class: a call on it that returns events, `order => order.ship('parcel-1')`. */
export type ClassCommand<State extends AggregateInstance> = (
  state: State,
) => AppliedEvent<State> | readonly AppliedEvent<State>[]

export function aggregate<State extends AggregateInstance>(
  name: string,
  definition: { readonly class: new () => State } & AggregateOptions<NoInfer<State>>,
): Aggregate<State, ClassCommand<State>, AppliedEvent<State>>
export function aggregate<State, Command, Event extends AnyEvent>(
  name: string,
  definition: Decider<State, Command, Event> & DeciderOptions<NoInfer<State>>,
): Aggregate<State, Command, Event>
export function aggregate<Doc, Command, Event extends AnyEvent>(
  name: string,
  definition: ProjectedDefinition<Doc, Command, Event>,
): Aggregate<Doc | null, Command, Event>
export function aggregate(name: string, definition: AnyDefinition & DeciderOptions<unknown>): Aggregate {
  const { snapshotEvery, stateVersion = 1, cacheSize = 256, validate } = definition
  checkCategory(name)
  if (snapshotEvery !== undefined) checkWhole('snapshotEvery', snapshotEvery, 1)
  checkWhole('stateVersion', stateVersion, 1)
  checkWhole('cacheSize', cacheSize, 0)
  const { decider, snapshots, kept } = formOf(definition)
  if (snapshotEvery !== undefined && snapshots === 'none')
    throw new InvalidOption({ option: 'snapshotEvery', reason: `needs a state of plain JSON, or snapshot and hydrate` })
  const { initial, evolve, decide } = decider
  for (const [option, given] of Object.entries({ initial, evolve, decide }))
    if (typeof given !== 'function')
      throw new InvalidOption({ option, reason: `of aggregate "${name}" is no function` })
  return {
    ...{
      name,
      snapshotEvery,
      stateVersion,
      cacheSize,
      snapshots,
      kept,
      isProjected: 'projection' in definition,
      initial,
      evolve,
      decide,
    },
    validate: state => validate?.(state) ?? undefined,
    stream: id => checkName('Stream', `${name}-${id}`),
  }
}

type AnyDefinition =
  | Decider<unknown, unknown>
  | { readonly class: new () => AggregateInstance }
  | { readonly projection: FoldingProjection<unknown>; readonly decide: Decider<unknown, unknown>['decide'] }

function formOf(definition: AnyDefinition & DeciderOptions<unknown>): Pick<Aggregate, 'snapshots' | 'kept'> & {
  readonly decider: Decider<unknown, unknown>
} {
  if ('class' in definition) {
    const snapshots = formOfClass(definition.class)
    return { decider: deciderOfClass(definition.class) as Decider<unknown, unknown>, snapshots, kept: undefined }
  }
  if (!('projection' in definition))
    return { decider: definition, snapshots: formOfDecider(definition), kept: undefined }
  const { projection, decide } = definition
  return { decider: deciderOfProjection(projection, decide), snapshots: 'none', kept: projection.kept }
}

/** Its id is the name of a stream of its category. */
export function checkStream({ name }: Aggregate, id: string): string {
  checkName('Stream', id)
  if (category(id) === name) return id
  const reason = `is no stream of the category "${name}", which begin with "${name}-": ${name}.stream(id) makes one`
  throw new InvalidName({ what: 'Stream', given: id, reason })
}

function deciderOfClass(
  kind: new () => AggregateInstance,
): Decider<AggregateInstance, ClassCommand<AggregateInstance>> {
  return {
    initial: () => new kind(),
    evolve(state, event) {
      state.apply(event as never)
      return state
    },
    decide: (command, state) => command(state),
  }
}

function formOfClass(kind: new () => AggregateInstance): Aggregate['snapshots'] {
  const { snapshot, hydrate } = kind.prototype as AggregateInstance
  if (typeof snapshot !== 'function' || typeof hydrate !== 'function') return 'none'
  return {
    write: state => snapshot.call(state as AggregateInstance),
    read(body) {
      const state = new kind()
      hydrate.call(state, body)
      return state
    },
  }
}

function formOfDecider({ toSnapshot, fromSnapshot }: DeciderOptions<unknown>): Aggregate['snapshots'] {
  if (toSnapshot !== undefined && fromSnapshot !== undefined) return { write: toSnapshot, read: fromSnapshot }
  if (toSnapshot === undefined && fromSnapshot === undefined) return 'plain'
  const [given, missing] = toSnapshot === undefined ? ['fromSnapshot', 'toSnapshot'] : ['toSnapshot', 'fromSnapshot']
  throw new InvalidOption({ option: given!, reason: `needs ${missing} beside it: what is written must come back` })
}

function checkCategory(name: string): void {
  checkName('Category', name)
  if (category(name) !== name || name.includes('-'))
    throw new InvalidName({ what: 'Category', given: name, reason: 'has a "-" in it, which ends a category' })
}
