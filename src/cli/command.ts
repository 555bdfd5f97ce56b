/**
 * What a command is: what it takes, an example, and what it does. Help, completion, the reference and the parser are all
 * made from this one description, so none of them can say something else than the others.
 */
import type { Config } from '../config.ts'
import type { Store, StoreOptions } from '../store.ts'
import type { Tenants } from '../tenants/tenants.ts'
import type { Output } from './output/output.ts'

/** A command, or a noun with commands of its own. Either is loaded only when it is asked for. */
export type Node = Group | Leaf

export interface Group {
  readonly summary: string
  readonly commands: () => Promise<Commands>
}

export type Commands = Readonly<Record<string, Node>>

export interface Leaf {
  readonly summary: string
  readonly load: () => Promise<Command>
}

/** The program itself. */
export interface Root extends Group {
  /** Words that are accepted and not shown: where they lead. */
  readonly aliases: Readonly<Record<string, readonly string[]>>
}

export interface Command {
  /** More than the summary, in whole sentences. */
  readonly description?: string | undefined
  readonly arguments: readonly Argument[]
  readonly options: Readonly<Record<string, Option>>
  /** At least one, each a line that can be copied. */
  readonly examples: readonly string[]
  /** Adds `--yes` and `--dry-run`: see `Invocation.confirm`. */
  readonly destructive?: boolean | undefined
  readonly run: (invocation: Invocation) => Promise<ExitCode | undefined>
}

/** Text on the line, turned into a value of this kind. */
export interface Kinds {
  text: string
  whole: number
  position: bigint
  time: Date
  json: unknown
}

/** Things whose names `rillflow status` leaves for the shell. Of dead letters it is the consumer. */
export type NamedThing = 'projection' | 'subscription' | 'dead-letter' | 'handler' | 'collection' | 'tenant'

export interface Argument {
  readonly name: string
  readonly summary: string
  /** Default 'text'. */
  readonly kind?: keyof Kinds | undefined
  readonly optional?: boolean | undefined
  readonly choices?: readonly string[] | undefined
  /** What it is the name of, so that a shell completes it. */
  readonly names?: NamedThing | undefined
}

export interface Option {
  readonly summary: string
  readonly kind: keyof Kinds | 'flag'
  /** What stands for its value in help. Default: its kind. */
  readonly value?: string | undefined
  readonly choices?: readonly string[] | undefined
  /** What it is the name of, so that a shell completes it. */
  readonly names?: NamedThing | undefined
  readonly default?: string | number | undefined
  /** The command does nothing without it. */
  readonly required?: boolean | undefined
  /** May be given several times. */
  readonly many?: boolean | undefined
  /** One letter: `-f`. For flags only. */
  readonly short?: string | undefined
  /** The variable of the environment that says it where the line does not. */
  readonly env?: string | undefined
  /** Other names, accepted and not shown. */
  readonly aliases?: readonly string[] | undefined
}

/** 3 is for checks that found problems; 4 for a schema that is newer than this version; 130 for Ctrl-C. */
export type ExitCode = 0 | 1 | 2 | 3 | 4 | 130

export interface Invocation<A = Record<string, unknown>, O = Record<string, unknown>> {
  readonly arguments: A
  readonly options: O
  /** The whole tree of commands. */
  readonly root: Root
  readonly out: Output
  /** Aborts with the first Ctrl-C: end what is under way, and begin nothing new. */
  readonly signal: AbortSignal
  /** Where the store is, as far as the line and the environment say it. */
  readonly place: Place
  /** The configuration file, and where it is; undefined if there is none. */
  config(): Promise<LoadedConfig | undefined>
  /** The store, with everything registered that the configuration has. Closed when the command is over. */
  open(options?: OpenOptions): Promise<Opened>
  /** Asks on a terminal; elsewhere `--yes` must have been given. False if only a dry run was wanted, which is told. */
  confirm(deed: string): Promise<boolean>
}

export interface OpenOptions extends Pick<StoreOptions, 'migrate' | 'logger'> {
  /** Whether an embedded store may be made where there is none. Default false. */
  readonly creates?: boolean | undefined
  /** Whether the command is about tenants as such, or all of them: then there must be some, and `--tenant` is refused. Default false. */
  readonly tenants?: boolean | undefined
  /** The configuration where there is none. */
  readonly fallback?: Config | undefined
  /** Registers more than the configuration does; called for each tenant if there are any. */
  readonly register?: ((store: Store, config: Config) => void) | undefined
}

export interface Opened {
  /** That of the tenant, if the line names one. With tenants and no name it refuses whatever needs one. */
  readonly store: Store
  /** Undefined if the store has no tenants. */
  readonly tenancy: OpenedTenancy | undefined
  readonly config: Config
  /** The address without its password, or the folder. */
  readonly where: string
  /** Whether nothing is left of it when it is closed. */
  readonly isInMemory: boolean
}

export interface OpenedTenancy {
  readonly tenants: Tenants
  /** Whether the command is one tenant's. */
  readonly isOne: boolean
  /** The store of one, once all is registered in it. */
  storeOf(tenant: string): Promise<Store>
}

export interface LoadedConfig {
  readonly config: Config
  readonly path: string
}

/** Where the store is, as the line and the environment say it. */
export interface Place {
  readonly url: string | undefined
  readonly schema: string | undefined
  readonly folder: string | undefined
  /** Embedded, and gone at the end: for commands that have `--memory`. */
  readonly memory?: boolean | undefined
  readonly tenant: string | undefined
  /** Whose a command is where the line names nobody; commands about all tenants do not mind it. */
  readonly usualTenant: string | undefined
  readonly tenancy: string | undefined
  readonly config: string | undefined
}

/** A command whose `run` knows the types of what it is given. */
export function defineCommand<const A extends readonly Argument[], const O extends Readonly<Record<string, Option>>>(
  command: Omit<Command, 'run' | 'arguments' | 'options'> & {
    readonly arguments?: A
    readonly options?: O
    readonly run: (
      invocation: Invocation<ArgumentValues<A>, OptionValues<O>>,
    ) => Promise<ExitCode | undefined> | Promise<void>
  },
): Command {
  const { arguments: taken = [], options = {}, run } = command
  return { ...command, arguments: taken, options, run: async given => (await run(given as never)) ?? undefined }
}

/** The commands of a noun by their verbs, each with its line of help. */
export function defineVerbs(verbs: Readonly<Record<string, readonly [summary: string, Command]>>): Commands {
  const leaves = Object.entries(verbs).map(([verb, [summary, command]]) => [
    verb,
    { summary, load: async () => command },
  ])
  return Object.fromEntries(leaves)
}

type ArgumentValues<A extends readonly Argument[]> = {
  readonly [Each in A[number] as Each['name']]: KindOf<Each> | (Each extends { optional: true } ? undefined : never)
}

type KindOf<T> = T extends { choices: readonly (infer C)[] }
  ? C
  : T extends { kind: infer K extends keyof Kinds }
    ? Kinds[K]
    : string

type OptionValues<O extends Readonly<Record<string, Option>>> = {
  readonly [Name in keyof O]: O[Name] extends { kind: 'flag' }
    ? boolean
    : O[Name] extends { many: true }
      ? readonly KindOf<O[Name]>[]
      : KindOf<O[Name]> | (O[Name] extends { default: string | number } | { required: true } ? never : undefined)
}
