/**
 * A command: its arguments, its options, an example, and the function that runs it. Help, completion, the reference
 * and the parser are all made from this one description, so they cannot disagree.
 *
 *     const show = defineCommand({ arguments: [{ name: 'event', summary: 'The id of the event' }], …, run({ open, out }) { … } })
 *     export const events: Commands = defineVerbs({ show: ['Show one event in full', show] })
 *
 * The types of `arguments` and `options` in `run` are inferred from the description.
 */
import type { Config } from '../config.ts'
import type { Store, StoreOptions } from '../store.ts'
import type { Tenants } from '../tenants/tenants.ts'
import type { OlderLine } from './older-lines.ts'
import type { Output } from './output/output.ts'

export interface Command {
  /** Adds to the summary, in whole sentences. */
  readonly description?: string | undefined
  readonly arguments: readonly Argument[]
  readonly options: Readonly<Record<string, Option>>
  /** At least one. Each is a line that can be copied. */
  readonly examples: readonly string[]
  /** Adds `--yes` and `--dry-run`: see `Invocation.confirm`. */
  readonly destructive?: boolean | undefined
  readonly run: (invocation: Invocation) => Promise<ExitCode | undefined>
}

/** A command, or a noun with commands of its own. Both are loaded only when a line asks for them. */
export type Entry = Group | Leaf

export interface Group {
  readonly summary: string
  readonly commands: () => Promise<Commands>
}

export interface Leaf {
  readonly summary: string
  readonly load: () => Promise<Command>
}

export type Commands = Readonly<Record<string, Entry>>

/** The program itself. */
export interface Root extends Group {
  /** Other names of commands that users look for under another noun. Help and the reference show them. */
  readonly synonyms: Aliases
  /** Lines that are accepted but not shown. */
  readonly older: Readonly<Record<string, OlderLine>>
}

/** Names, each with the command that it stands for; options may follow the words of the command. */
export type Aliases = Readonly<Record<string, readonly string[]>>

/** The kinds of values on the line, and the types they are parsed into. */
export interface Kinds {
  text: string
  whole: number
  position: number
  time: Date
  json: unknown
}

/** The names that a shell can complete, as `rillflow status` saved them. For dead letters it is the name of their consumer or handler. */
export type NameKind = 'consumer' | 'projection' | 'subscription' | 'dead-letter' | 'handler' | 'collection' | 'tenant'

export interface Argument {
  readonly name: string
  readonly summary: string
  /** Default 'text'. */
  readonly kind?: keyof Kinds | undefined
  readonly optional?: boolean | undefined
  /** As the library has them; on the line they are in kebab-case. */
  readonly choices?: readonly string[] | undefined
  /** The kind of name that a shell completes here. */
  readonly completes?: NameKind | undefined
}

export interface Option {
  readonly summary: string
  readonly kind: keyof Kinds | 'flag'
  /** The placeholder for its value in help. Default: its kind. */
  readonly value?: string | undefined
  /** As the library has them; on the line they are in kebab-case. */
  readonly choices?: readonly string[] | undefined
  /** The kind of name that a shell completes here. */
  readonly completes?: NameKind | undefined
  readonly default?: string | number | undefined
  /** The command is refused without it. */
  readonly required?: boolean | undefined
  /** It may be given several times. */
  readonly many?: boolean | undefined
  /** One letter: `-f`. Only for flags. */
  readonly short?: string | undefined
  /** The environment variable that is read if the line does not have the option. */
  readonly env?: string | undefined
  /** Other names, accepted but not shown. */
  readonly aliases?: readonly string[] | undefined
}

/** 3: a check found problems. 4: the schema is newer than this version. 130: interrupted before the work was done. */
export type ExitCode = 0 | 1 | 2 | 3 | 4 | 130

/** Everything that a command is given when it runs. */
export interface Invocation<A = Record<string, unknown>, O = Record<string, unknown>> {
  readonly arguments: A
  readonly options: O
  readonly root: Root
  readonly out: Output
  /** Aborts at the first Ctrl-C: the command then ends its running work and starts nothing new. */
  readonly signal: AbortSignal
  /** The part of the store's location that the line and the environment give. */
  readonly location: Location
  /** The configuration file and its path; undefined if there is none. */
  config(): Promise<LoadedConfig | undefined>
  /** Opens the store with everything that the configuration has. It is closed when the command ends. */
  open(options?: OpenOptions): Promise<Opened>
  /**
   * Asks before something is destroyed. `action` completes "This will …". Elsewhere than on a terminal `--yes` is required.
   * False if this is a dry run, which has then been printed.
   */
  confirm(action: string): Promise<boolean>
}

export interface OpenOptions extends Pick<StoreOptions, 'migrate' | 'logger'> {
  /** Whether an embedded store is created if there is none. Default false. */
  readonly create?: boolean | undefined
  /** Whether the command is about tenants themselves. The store must then have tenants, and `--tenant` is refused. */
  readonly isAboutTenants?: boolean | undefined
  /** Used if there is no configuration file. */
  readonly defaultConfig?: Config | undefined
  /** The address of a server, instead of the location that the line and the environment give. */
  readonly url?: string | undefined
  /** How the command uses the store: see `open.ts`. Default 'read'. */
  readonly purpose?: 'read' | 'write' | 'run' | undefined
}

export interface Opened {
  /** The store of the tenant that the line names. If a store has tenants and the line names none, this refuses all calls. */
  readonly store: Store
  /** Undefined if the store has no tenants. */
  readonly tenancy: OpenedTenancy | undefined
  readonly config: Config
  /** The address without its password, or the folder. */
  readonly where: string
  readonly isInMemory: boolean
}

export interface OpenedTenancy {
  readonly tenants: Tenants
  /** Whether the line names a tenant. */
  readonly isOneTenant: boolean
  /** The store of a tenant, after everything has been registered in it. */
  storeOf(tenant: string): Promise<Store>
}

export interface LoadedConfig {
  readonly config: Config
  readonly path: string
}

/** Where the store is, as the line and the environment say it. */
export interface Location {
  readonly url: string | undefined
  readonly schema: string | undefined
  readonly folder: string | undefined
  /** Embedded and in memory, for commands that have `--memory`. */
  readonly memory?: boolean | undefined
  readonly tenant: string | undefined
  /** The tenant if the line names none. Commands about all tenants ignore it. */
  readonly defaultTenant: string | undefined
  readonly tenancy: string | undefined
  readonly config: string | undefined
  /** The name of the operator, for the audit. */
  readonly actor: string | undefined
}

/** Describes a command. The types of what `run` is given are inferred from its arguments and options. */
export function defineCommand<const A extends readonly Argument[], const O extends Readonly<Record<string, Option>>>(
  command: Omit<Command, 'run' | 'arguments' | 'options'> & {
    readonly arguments?: A
    readonly options?: O
    readonly run: (
      invocation: Invocation<ArgumentValues<A>, OptionValues<O>>,
    ) => Promise<ExitCode | undefined> | Promise<void>
  },
): Command {
  const { arguments: ownArguments = [], options = {}, run } = command
  return { ...command, arguments: ownArguments, options, run: async given => (await run(given as never)) ?? undefined }
}

/** The commands of a noun: each verb with its line of help. */
export function defineVerbs(verbs: Readonly<Record<string, readonly [summary: string, command: Command]>>): Commands {
  const leaves = Object.entries(verbs).map(([verb, [summary, command]]) => [
    verb,
    { summary, load: async () => command },
  ])
  return Object.fromEntries(leaves)
}

export type ArgumentValues<A extends readonly Argument[]> = {
  readonly [Each in A[number] as Each['name']]: KindOf<Each> | (Each extends { optional: true } ? undefined : never)
}

export type OptionValues<O extends Readonly<Record<string, Option>>> = {
  readonly [Name in keyof O]: O[Name] extends { kind: 'flag' }
    ? boolean
    : O[Name] extends { many: true }
      ? readonly KindOf<O[Name]>[]
      : KindOf<O[Name]> | (O[Name] extends { default: string | number } | { required: true } ? never : undefined)
}

type KindOf<T> = T extends { choices: readonly (infer C)[] }
  ? C
  : T extends { kind: infer K extends keyof Kinds }
    ? Kinds[K]
    : string
