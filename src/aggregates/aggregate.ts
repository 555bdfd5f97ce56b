/**
 * The definition of an aggregate: the state that the events of a stream fold to, and the decisions on that state.
 *
 *     const Order = defineAggregate('order', {
 *       events,                                                     types the code below
 *       initial: () => ({ status: 'new' as 'new' | 'paid' }),
 *       evolve: { OrderPaid: order => ({ ...order, status: 'paid' }) },       or one function: (order, event) => …
 *       decide(command: { type: 'Ship'; carrier: string }, order) {
 *         if (order.status !== 'paid') throw new Error('pay first')
 *         return { type: 'OrderShipped', data: { carrier: command.carrier } }
 *       },
 *       snapshots: { every: 100 },
 *     })
 *     const Order = defineClassAggregate('order', OrderClass)         the class folds events into itself
 *     const Order = defineProjectedAggregate('order', { … })          the document of a projection is the state: `projected.ts`
 *
 * The name is the category of the streams. The id of an aggregate is the name of its stream, `order-42`;
 * `Order.stream('42')` makes one.
 */
import type { ConsumerOptions } from '../consumers/consumer.ts'
import { checkDefinition, type Definition } from '../core/definition.ts'
import { InvalidName, InvalidOption } from '../core/errors.ts'
import { category, checkName } from '../core/name.ts'
import { describe, refuseUnknownOptions } from '../core/options.ts'
import type {
  EventDefinitions,
  EventKey,
  EventMap,
  EventsCarried,
  NewEvent,
  NewEventAt,
  NewEventOf,
  UntypedEvents,
} from '../events/definition.ts'
import type { ReadStored } from './projected.ts'

/** The definition of one category of streams. */
export interface Aggregate<State = unknown, Command = never, M extends EventMap = never>
  extends Definition<'aggregate'>,
    AggregateCode {
  /** Absent at run time: it carries the types. An aggregate on some of a store's events fits that store. */
  readonly '~types'?:
    | { readonly state: State; readonly command: (command: Command) => void; readonly events: (map: M) => void }
    | undefined
  /** The stream of an id: `order-42` for `42`. */
  stream(id: string): string
}

/** An event as a decision returns it and a fold sees it: without the fields that it gets when it is stored. */
export type AnyEvent = NewEventOf<string, unknown>

/** The code of an aggregate as this folder calls it, whatever the form it was written in. */
interface AggregateCode {
  initial(): unknown
  evolve(state: unknown, event: AnyEvent): unknown
  /** Undefined for an aggregate that is only decided on by `store.decide`. */
  readonly decide: ((command: unknown, state: unknown) => unknown) | undefined
  /** Why this state is not allowed; undefined if it is. */
  validate(state: unknown): string | undefined
  readonly snapshots: SnapshotOptions | undefined
  /** 'plain' where a state is its own snapshot, 'none' where it cannot have one. */
  readonly snapshotForm: SnapshotForm | 'plain' | 'none'
  /** Snapshots of another version are not used. */
  readonly stateVersion: number
  /** How many recent states stay in memory. */
  readonly cacheSize: number
  /** Reads the state that a projection has stored for a stream; undefined where none stores it. */
  readonly readStored: ReadStored | undefined
  /** Whether the code of a projection folds it, which expects events as they are stored. */
  readonly isProjected: boolean
}

/** How a state goes into a snapshot and comes back. */
export interface SnapshotForm {
  write(state: unknown): unknown
  read(snapshot: unknown): unknown
}

export interface SnapshotOptions extends Pick<ConsumerOptions, 'leaseMs' | 'timeoutMs' | 'retries' | 'onFailure'> {
  /** The number of events after which a stream gets its next snapshot. */
  readonly every: number
  /**
   * 'inline': the commit that reaches or passes a multiple of `every` writes it, in its own transaction. 'async': a
   * runner writes it soon after, also for events that no commit has appended. Default 'inline'.
   */
  readonly lifecycle?: 'inline' | 'async' | undefined
  /** With 'async': the most events looked at in one transaction. Default 100. */
  readonly batchSize?: number | undefined
}

export interface AggregateOptions<State> {
  /** Checks the state after a commit. To refuse the commit it throws, or returns the reason. */
  // biome-ignore lint/suspicious/noConfusingVoidType: a function that only throws returns nothing
  readonly validate?: ((state: State) => string | undefined | void) | undefined
  readonly snapshots?: SnapshotOptions | undefined
  /** Raise it when `evolve` or the shape of the state changes: older snapshots are then discarded. Default 1. */
  readonly stateVersion?: number | undefined
  /** How many recent states stay in memory, at most 64 KiB each; 0 for none. Default 256. */
  readonly cacheSize?: number | undefined
}

export interface AggregateDefinition<M extends EventMap, State, Type extends string, Command>
  extends AggregateOptions<NoInfer<State>> {
  /** The events of the store; only their types are used. */
  readonly events?: EventDefinitions<M> | undefined
  /** The state of a stream without events. */
  readonly initial: () => State
  /** The state after an event: a function for each type, or one for all. Other events leave the state as it is. */
  readonly evolve: Evolve<NoInfer<M>, State, Type>
  /**
   * Returns the events that follow from a command, `[]` for none. It throws to refuse the command. TypeScript takes a
   * literal inside of `data` for any text, unless it is written `'card' as const`.
   */
  readonly decide?: Decide<NoInfer<M>, NoInfer<State>, Command> | undefined
  /** A state that is not plain JSON, as plain JSON. Given together with `fromSnapshot`. */
  readonly toSnapshot?: ((state: NoInfer<State>) => unknown) | undefined
  readonly fromSnapshot?: ((snapshot: unknown) => NoInfer<State>) | undefined
}

/**
 * By type, where `'*'` is for types that have no function of their own; or one function for all. The function types are
 * inside of a conditional: TypeScript would otherwise take a literal such as 'paid' for any text, while it still infers
 * the state.
 */
export type Evolve<M extends EventMap, State, Type extends string> = [Type] extends [never]
  ? [State] extends [infer S]
    ? (state: S, event: NewEvent<M>) => S
    : never
  : { readonly [T in Type]: [State] extends [infer S] ? (state: S, event: NewEventAt<M, T>) => S : never }

export type Decide<M extends EventMap, State, Command> = (
  command: Command,
  state: State,
) => NewEvent<M> | readonly NewEvent<M>[]

/**
 * Defines what may happen to an entity: its state, folded from the events of its stream, and its decisions.
 *
 * @example
 * ```ts
 * const Cart = defineAggregate('cart', {
 *   events,
 *   initial: () => ({ status: 'new' }),
 *   evolve: { OrderPlaced: () => ({ status: 'placed' }) },
 *   decide: (command: { cents: number }, { status }) =>
 *     status === 'new' ? { type: 'OrderPlaced', data: { customer: 'Ada', cents: command.cents } } : [],
 * })
 * ```
 */
export function defineAggregate<
  M extends EventMap = UntypedEvents,
  State = unknown,
  Type extends EventKey<NoInfer<M>> = EventKey<NoInfer<M>>,
  Command = never,
>(name: string, definition: AggregateDefinition<M, State, Type, Command>): Aggregate<State, Command, EventsCarried<M>> {
  checkDefinition('defineAggregate', name, definition)
  const { initial, evolve, decide, toSnapshot, fromSnapshot, ...options } = definition
  refuseUnknownOptions(`Aggregate "${name}"`, definition, [...definitionFields, ...optionFields])
  refuseMissing(name, { initial })
  if (decide !== undefined) refuseMissing(name, { decide })
  const snapshotForm = formOf(name, toSnapshot as SnapshotForm['write'], fromSnapshot)
  return makeAggregate(name, options, {
    ...{ initial, evolve: evolver(name, evolve), decide: decide as AggregateCode['decide'], snapshotForm },
    ...{ readStored: undefined, isProjected: false },
  })
}

const definitionFields = ['events', 'initial', 'evolve', 'decide', 'toSnapshot', 'fromSnapshot']
const optionFields = ['validate', 'snapshots', 'stateVersion', 'cacheSize']

function evolver(name: string, given: unknown): AggregateCode['evolve'] {
  if (typeof given === 'function') return given as AggregateCode['evolve']
  if (typeof given !== 'object' || given === null)
    throw new InvalidOption({
      option: 'evolve',
      reason: `Aggregate "${name}" cannot fold events: "evolve" is ${describe(given)}. Give a function for each type of event, or one for all.`,
    })
  const functions = new Map(Object.entries(given))
  for (const [type, each] of functions) refuseMissing(name, { [`evolve.${type}`]: each })
  return (state, event) => (functions.get(event.type) ?? functions.get('*') ?? unchanged)(state, event)
}

function unchanged(state: unknown): unknown {
  return state
}

function formOf(
  name: string,
  write: SnapshotForm['write'] | undefined,
  read: SnapshotForm['read'] | undefined,
): AggregateCode['snapshotForm'] {
  if (write !== undefined && read !== undefined) return { write, read }
  if (write === undefined && read === undefined) return 'plain'
  const [given, missing] = write === undefined ? ['fromSnapshot', 'toSnapshot'] : ['toSnapshot', 'fromSnapshot']
  throw new InvalidOption({
    option: given!,
    reason: `Aggregate "${name}" has ${given} but no ${missing}. A state that is written must also be read: give both.`,
  })
}

// ── Classes ──────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * A class whose instances fold their stream into themselves. Without `snapshot` and `hydrate` it has no snapshots.
 *
 * @example
 * ```ts
 * class Cart implements AggregateInstance {
 *   items = 0
 *   apply(event: { type: string }) {
 *     if (event.type === 'ItemAdded') this.items++
 *   }
 * }
 * ```
 */
export interface AggregateInstance<Event extends AnyEvent = never> {
  /** Changes itself as the event says, and does nothing else. */
  apply(event: Event): unknown
  snapshot?(): unknown
  /** Called on a new instance, with the result of `snapshot`. */
  hydrate?(snapshot: unknown): unknown
}

/** A command to an aggregate that is a class: a call on it that returns events, `order => order.ship('parcel-1')`. */
export type ClassCommand<State extends AggregateInstance> = (
  state: State,
) => AppliedEvent<State> | readonly AppliedEvent<State>[]

/** The events that the `apply` of a class takes. */
export type AppliedEvent<State extends AggregateInstance> = Parameters<State['apply']>[0]

/** The same as a map from type to data. */
export type AppliedEvents<State extends AggregateInstance> = {
  readonly [E in AppliedEvent<State> & AnyEvent as E['type']]: E['data']
}

/**
 * Defines an aggregate by a class, whose `apply` changes it in place. A command is a function of an instance.
 *
 * @example
 * ```ts
 * class Cart {
 *   cents = 0
 *   apply(event: { type: 'OrderPlaced'; data: { customer: string; cents: number } }): void {
 *     this.cents += event.data.cents
 *   }
 * }
 * const CartAggregate = defineClassAggregate('cart', Cart)
 * ```
 */
export function defineClassAggregate<State extends AggregateInstance>(
  name: string,
  kind: new () => State,
  options: AggregateOptions<NoInfer<State>> = {},
): Aggregate<State, ClassCommand<State>, AppliedEvents<State>> {
  refuseUnknownOptions(`Aggregate "${name}"`, options, optionFields)
  refuseMissing(name, { class: kind, 'class.prototype.apply': kind.prototype.apply })
  return makeAggregate(name, options, {
    initial: () => new kind(),
    evolve(state, event) {
      ;(state as State).apply(event as never)
      return state
    },
    decide: (command, state) => (command as ClassCommand<State>)(state as State),
    snapshotForm: formOfClass(kind),
    ...{ readStored: undefined, isProjected: false },
  })
}

function formOfClass(kind: new () => AggregateInstance): AggregateCode['snapshotForm'] {
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

// ── Common to all forms ──────────────────────────────────────────────────────────────────────────────────────────

/** Checks the options and puts a definition together. */
export function makeAggregate<State, Command, M extends EventMap>(
  name: string,
  { validate, snapshots, stateVersion = 1, cacheSize = 256 }: AggregateOptions<State>,
  code: Omit<AggregateCode, 'validate' | 'snapshots' | 'stateVersion' | 'cacheSize'>,
): Aggregate<State, Command, M> {
  checkCategory(name)
  checkCount(name, 'stateVersion', stateVersion, 1)
  checkCount(name, 'cacheSize', cacheSize, 0)
  if (snapshots !== undefined) checkSnapshots(name, snapshots, code.snapshotForm)
  return Object.freeze({
    ...{ kind: 'aggregate' as const, name, ...code, snapshots, stateVersion, cacheSize },
    validate: (state: unknown) => validate?.(state as State) ?? undefined,
    stream: (id: string) => checkName('Stream', `${name}-${id}`),
  })
}

const snapshotFields = [
  'every',
  'lifecycle',
  'batchSize',
  'leaseMs',
  'timeoutMs',
  'retries',
  'onFailure',
] satisfies readonly (keyof SnapshotOptions)[]

function checkSnapshots(name: string, given: SnapshotOptions, form: AggregateCode['snapshotForm']): void {
  refuseUnknownOptions(`"snapshots" of aggregate "${name}"`, given, snapshotFields)
  checkCount(name, 'snapshots.every', given.every, 1)
  const { lifecycle = 'inline' } = given
  if (lifecycle !== 'inline' && lifecycle !== 'async')
    throw new InvalidOption({
      option: 'snapshots.lifecycle',
      reason: `Aggregate "${name}" has snapshots with the lifecycle ${describe(lifecycle)}. It must be 'inline' or 'async'.`,
    })
  if (form === 'none')
    throw new InvalidOption({
      option: 'snapshots',
      reason: `Aggregate "${name}" cannot have snapshots: its class has no snapshot and hydrate. Give it both methods, or leave "snapshots" out.`,
    })
}

function checkCount(name: string, option: string, value: unknown, min: number): void {
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) < 2 ** 31) return
  const reason = `Aggregate "${name}" has ${option} = ${describe(value)}. It must be a whole number from ${min} on.`
  throw new InvalidOption({ option, reason })
}

function refuseMissing(name: string, functions: Readonly<Record<string, unknown>>): void {
  for (const [option, given] of Object.entries(functions)) {
    if (typeof given === 'function') continue
    const reason = `Aggregate "${name}" needs a function as "${option}", and has ${describe(given)}.`
    throw new InvalidOption({ option, reason })
  }
}

function checkCategory(name: string): void {
  checkName('Category', name)
  if (category(name) !== name || name.includes('-'))
    throw new InvalidName({ what: 'Category', given: name, reason: 'has a "-" in it, which ends a category' })
}

/** The id of an aggregate is the name of a stream of its category. */
export function checkStream({ name }: Aggregate, id: string): string {
  checkName('Stream', id)
  if (category(id) === name) return id
  const reason = `is not a stream of the category "${name}", whose streams begin with "${name}-". Make one with stream(id)`
  throw new InvalidName({ what: 'Stream', given: id, reason })
}
