/**
 * From the words of a line to a command and its values.
 *
 *     findCommand   words ──► path of noun and verb ──► command, and the words that are left
 *     parseLine     words that are left ──► arguments and options, each of its kind; options of all commands may stand anywhere
 *
 * What can fail: a line with a mistake. It is refused with `WrongUsage` before a store is opened; the error suggests the
 * nearest name and a line to try.
 */
import { parseArgs } from 'node:util'
import { nearestName } from '../core/name.ts'
import type { Argument, Command, Commands, Entry, Group, Kinds, Leaf, Location, Option, Root } from './command.ts'
import { type OlderLine, olderOptions, translated } from './older-lines.ts'
import { WrongUsage } from './report-error.ts'

/** The options of every command. */
export const globalOptions = {
  url: {
    kind: 'text',
    value: 'URL',
    summary: 'The database server: postgres://user:password@host/database; or RILLFLOW_URL, or DATABASE_URL',
    aliases: ['database-url'],
  },
  folder: {
    kind: 'text',
    value: 'PATH',
    summary: 'The folder of the embedded store, if it is not ./.rillflow; or RILLFLOW_FOLDER',
  },
  schema: { kind: 'text', value: 'NAME', env: 'RILLFLOW_SCHEMA', summary: 'The database schema of the store' },
  tenant: {
    kind: 'text',
    value: 'NAME',
    completes: 'tenant',
    summary: 'The tenant, if the store has tenants; or RILLFLOW_TENANT',
  },
  tenancy: {
    kind: 'text',
    value: 'KIND',
    choices: ['schema'],
    env: 'RILLFLOW_TENANCY',
    summary: 'States that the store has tenants, if the configuration does not',
  },
  config: {
    kind: 'text',
    value: 'PATH',
    env: 'RILLFLOW_CONFIG',
    summary: 'The configuration file, if it is not ./rillflow.config.ts, .js or .mjs',
  },
  actor: {
    kind: 'text',
    value: 'NAME',
    env: 'RILLFLOW_ACTOR',
    summary: 'The name of the operator for the audit, if it is not the user of the system',
  },
  json: { kind: 'flag', summary: 'Print JSON for programs instead of text for people' },
  color: {
    kind: 'flag',
    summary: 'Use colours even without a terminal; --no-color turns them off',
    aliases: ['colour'],
  },
  debug: { kind: 'flag', summary: 'Also print the stack trace of an error' },
  help: { kind: 'flag', short: 'h', summary: 'Show the arguments and options of a command, with an example' },
} as const

/** Added to destructive commands. */
export const destructiveOptions = {
  yes: { kind: 'flag', summary: 'Do not ask for confirmation', aliases: ['force'] },
  dryRun: { kind: 'flag', summary: 'Only print what would be done' },
} as const

export interface Globals extends Omit<Location, 'defaultTenant'> {
  readonly json: boolean
  readonly color: boolean | undefined
  readonly debug: boolean
  readonly help: boolean
}

/** `maxInFlight` is `--max-in-flight` on the line. */
export function flagOf(name: string): string {
  return `--${kebabCase(name)}`
}

/** A literal of the library on the line and in text for people: `leasedByOther` is `leased-by-other`. JSON has it as it is. */
export function kebabCase(literal: string): string {
  return literal.replaceAll('_', '-').replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)
}

export interface Found {
  /** The full name of the command: `['consumers', 'reset']`. Another name is replaced by the command it stands for. */
  readonly path: readonly string[]
  readonly entry: Entry
  /** The words that are left. */
  readonly rest: readonly string[]
}

/** Finds the command that a line names. Options of all commands may stand before and between its words. */
export async function findCommand(root: Root, words: readonly string[]): Promise<Found> {
  const optionWords: string[] = []
  const typed: string[] = []
  let older: OlderLine | undefined
  let path: readonly string[] = []
  let entry: Entry = root
  let at = 0
  while (isGroup(entry) && at < words.length) {
    const word = words[at]!
    if (word === '--') break
    if (word.startsWith('-') && word !== '-') {
      const takesValue = !word.includes('=') && globalsWithValue.has(word)
      optionWords.push(...words.slice(at, at + (takesValue ? 2 : 1)))
      at += takesValue ? 2 : 1
      continue
    }
    const commands: Commands = await entry.commands()
    const child: Entry | undefined = Object.hasOwn(commands, word) ? commands[word] : undefined
    typed.push(word)
    // The noun of an older line may be one that there is no longer.
    const isOldNoun = child === undefined && Object.hasOwn(root.older, `${typed.join(' ')} ${words[at + 1]}`)
    if (isOldNoun) typed.push(words[++at]!)
    const name = typed.join(' ')
    older = Object.hasOwn(root.older, name) ? root.older[name] : undefined
    const alias = older?.command ?? root.synonyms[name]
    if (alias === undefined && child !== undefined) {
      path = [...path, word]
      entry = child
    } else if (alias !== undefined) {
      const optionsAt = alias.findIndex(each => each.startsWith('--'))
      path = optionsAt < 0 ? alias : alias.slice(0, optionsAt)
      optionWords.push(...alias.slice(path.length))
      entry = root
      for (const each of path) entry = (await (entry as Group).commands())[each]!
    } else throw await unknownCommand(root, Object.keys(commands), path, word)
    at++
  }
  const rest = [...optionWords, ...words.slice(at)]
  if (older === undefined || isGroup(entry) || rest.includes('--help') || rest.includes('-h'))
    return { path, entry, rest }
  const now = translated(older, rest)
  if ('words' in now) return { path, entry, rest: now.words }
  const { line, reason = `The line "${typed.join(' ')}" is another one here` } = now
  throw new WrongUsage({ reason, hint: line })
}

export function isGroup(entry: Entry): entry is Group {
  return 'commands' in entry
}

/** Every command of the tree, in its order. */
export async function* allCommands(
  group: Group,
  path: readonly string[] = [],
): AsyncGenerator<{ path: string[]; leaf: Leaf }> {
  for (const [name, entry] of Object.entries(await group.commands())) {
    if (isGroup(entry)) yield* allCommands(entry, [...path, name])
    else yield { path: [...path, name], leaf: entry }
  }
}

/** Options of all commands that are followed by a value. */
const globalsWithValue = new Set(
  Object.entries(globalOptions).flatMap(([name, option]) =>
    option.kind === 'flag' ? [] : [flagOf(name), ...('aliases' in option ? option.aliases.map(flagOf) : [])],
  ),
)
for (const [flag, { takesValue }] of Object.entries(olderOptions)) if (takesValue) globalsWithValue.add(flag)

async function unknownCommand(
  root: Root,
  commandNames: readonly string[],
  path: readonly string[],
  word: string,
): Promise<Error> {
  const nearest = nearestName(word, commandNames)
  const verbs = path.length === 0 && nearest === undefined ? await nounsWith(root, word) : []
  if (verbs.length > 0)
    return new WrongUsage({
      reason: `There is no command "${word}" without a noun. There ${verbs.length === 1 ? 'is' : 'are'} ${verbs.join(', ')}`,
      hint: `rillflow ${verbs[0]} --help`,
    })
  const line = ['rillflow', ...path].join(' ')
  const suggestion = nearest === undefined ? '' : ` (did you mean "${[...path, nearest].join(' ')}"?)`
  return new WrongUsage({
    reason: `There is no command "${[...path, word].join(' ')}"${suggestion}`,
    hint: nearest === undefined ? `${line} --help` : `${line} ${nearest} --help`,
  })
}

/** The commands of all nouns that have this verb. */
async function nounsWith(root: Root, verb: string): Promise<string[]> {
  const found: string[] = []
  for await (const { path } of allCommands(root))
    if (path.length > 1 && path.at(-1) === verb) found.push(path.join(' '))
  return found
}

export interface Parsed {
  readonly globals: Globals
  readonly arguments: Record<string, unknown>
  readonly options: Record<string, unknown>
}

/** Reads only the options that decide how to answer. They are known before anything of the line can be wrong. */
export function peekGlobals(words: readonly string[]): Pick<Globals, 'json' | 'color' | 'debug' | 'help'> {
  const optionWords = words.includes('--') ? words.slice(0, words.indexOf('--')) : words
  const has = (...flags: string[]): boolean => optionWords.some(word => flags.includes(word))
  const color = has('--no-color', '--no-colour') ? false : has('--color', '--colour') ? true : undefined
  return { json: has('--json'), color, debug: has('--debug'), help: has('--help', '-h') }
}

/** Parses the words that follow the name of a command. */
export function parseLine(
  command: Command,
  path: readonly string[],
  words: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Parsed {
  const line = ['rillflow', ...path].join(' ')
  const ownOptions = { ...command.options, ...(command.destructive ? destructiveOptions : {}) }
  const options: Readonly<Record<string, Option>> = { ...globalOptions, ...ownOptions }
  const flags = flagsOf(options)
  const given = new Map<string, unknown[]>()
  const positionals: string[] = []
  for (const token of tokensOf(words, flags)) {
    if (token.kind === 'option-terminator') continue
    if (token.kind === 'positional') {
      positionals.push(token.value)
      continue
    }
    const flag = flags.get(token.rawName)
    if (flag === undefined) throw unknownFlag(token.rawName, flags, line)
    const { name, option, isNegated } = flag
    if (option.kind === 'flag') {
      if (token.value !== undefined)
        throw new WrongUsage({ reason: `${token.rawName} takes no value`, hint: `${line} --help` })
      given.set(name, [!isNegated])
      continue
    }
    if (token.value === undefined)
      throw new WrongUsage({ reason: `${token.rawName} needs a value`, hint: `${line} --help` })
    const value = parseValue(token.rawName, option, token.value, line)
    given.set(name, option.many ? [...(given.get(name) ?? []), value] : [value])
  }
  for (const [name, option] of Object.entries(options)) {
    const text = option.env === undefined || given.has(name) ? undefined : env[option.env] || undefined
    if (text !== undefined) given.set(name, [parseValue(option.env!, option, text, line)])
  }
  return {
    globals: optionValues(globalOptions, given, line) as unknown as Globals,
    arguments: argumentValues(command.arguments, positionals, line),
    options: optionValues(ownOptions, given, line),
  }
}

interface Flag {
  readonly name: string
  readonly option: Option
  readonly isNegated: boolean
}

function flagsOf(options: Readonly<Record<string, Option>>): Map<string, Flag> {
  const flags = new Map<string, Flag>()
  for (const [name, option] of Object.entries(options)) {
    if (option.short !== undefined) flags.set(`-${option.short}`, { name, option, isNegated: false })
    for (const spelling of [name, ...(option.aliases ?? [])]) {
      const flag = flagOf(spelling)
      flags.set(flag, { name, option, isNegated: false })
      if (option.kind === 'flag') flags.set(flag.replace('--', '--no-'), { name, option, isNegated: true })
    }
  }
  return flags
}

type Token = NonNullable<ReturnType<typeof parseArgs>['tokens']>[number]

function tokensOf(words: readonly string[], flags: ReadonlyMap<string, Flag>): readonly Token[] {
  const options = Object.fromEntries(
    [...flags]
      .filter(([flag]) => flag.startsWith('--'))
      .map(([flag, { option }]) => [flag.slice(2), { type: option.kind === 'flag' ? 'boolean' : 'string' } as const]),
  )
  const { tokens } = parseArgs({ args: [...words], options, strict: false, allowPositionals: true, tokens: true })
  return tokens as readonly Token[]
}

function unknownFlag(flag: string, flags: ReadonlyMap<string, Flag>, line: string): Error {
  if (Object.hasOwn(olderOptions, flag))
    return new WrongUsage({ reason: `"${line}" has no option ${flag}`, hint: olderOptions[flag]!.hint })
  const names = [...flags.keys()].filter(name => !name.startsWith('--no-'))
  const nearest = nearestName(flag, names)
  const suggestion = nearest === undefined ? '' : ` (did you mean ${nearest}?)`
  return new WrongUsage({ reason: `"${line}" has no option ${flag}${suggestion}`, hint: `${line} --help` })
}

function optionValues(
  options: Readonly<Record<string, Option>>,
  given: ReadonlyMap<string, unknown[]>,
  line: string,
): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(options).map(([name, option]) => {
      const values = given.get(name)
      if (option.many) return [name, values ?? []]
      if (option.required && values === undefined)
        throw new WrongUsage({ reason: `"${line}" needs ${flagOf(name)}: ${option.summary}`, hint: `${line} --help` })
      // Without --color and --no-color the terminal decides.
      const valueIfAbsent = option.kind === 'flag' && name !== 'color' ? false : option.default
      return [name, values === undefined ? valueIfAbsent : values[0]]
    }),
  )
}

function argumentValues(
  defined: readonly Argument[],
  positionals: readonly string[],
  line: string,
): Record<string, unknown> {
  const [excess] = positionals.slice(defined.length)
  if (excess !== undefined)
    throw new WrongUsage({ reason: `"${line}" does not take the argument "${excess}"`, hint: `${line} --help` })
  const values: Record<string, unknown> = {}
  for (const [at, argument] of defined.entries()) {
    const text = positionals[at]
    const label = argument.name.toUpperCase()
    if (text === undefined && !argument.optional)
      throw new WrongUsage({ reason: `"${line}" needs ${label}: ${argument.summary}`, hint: `${line} --help` })
    values[argument.name] =
      text === undefined
        ? undefined
        : parseValue(label, { kind: argument.kind ?? 'text', choices: argument.choices }, text, line)
  }
  return values
}

/** Parses the text of one argument or option into a value of its kind. */
function parseValue(label: string, option: Pick<Option, 'kind' | 'choices'>, text: string, line: string): unknown {
  const value = option.kind === 'flag' ? undefined : parsers[option.kind](text)
  if (value === undefined) throw wrongValue(label, expectations[option.kind as keyof Kinds], text, line)
  if (option.choices === undefined) return value
  const choice = option.choices.find(each => kebabCase(each) === text)
  if (choice === undefined) throw wrongValue(label, `one of ${option.choices.map(kebabCase).join(', ')}`, text, line)
  return choice
}

const unitMs: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

const parsers: { readonly [K in keyof Kinds]: (text: string) => Kinds[K] | undefined } = {
  text: text => text,
  whole: text => (/^\d+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined),
  position: text => (/^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined),
  time(text) {
    const [, count, unit] = /^(\d+)([smhd])$/.exec(text) ?? []
    if (count !== undefined) return new Date(Date.now() - Number(count) * unitMs[unit!]!)
    const time = new Date(text)
    return Number.isNaN(time.getTime()) ? undefined : time
  },
  json(text) {
    try {
      return JSON.parse(text) as unknown
    } catch {
      return undefined
    }
  },
}

const expectations: Readonly<Record<keyof Kinds, string>> = {
  text: 'text',
  whole: 'a whole number',
  position: 'a position, which is a whole number',
  time: 'a time such as 2026-01-31T12:00:00Z, or an age such as 15m, 2h or 7d',
  json: `JSON, in single quotes for the shell: '{"total":99}'`,
}

function wrongValue(label: string, expected: string, text: string, line: string): Error {
  const shown = text.length > 60 ? `${text.slice(0, 59)}…` : text
  return new WrongUsage({
    reason: `${label} must be ${expected}, not ${JSON.stringify(shown)}`,
    hint: `${line} --help`,
  })
}
