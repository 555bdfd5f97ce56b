/**
 * From the words of the line to a command and its values.
 *
 *     find   words ─► path of nouns and verbs ─► command, and the words that are left       hidden names lead on from here
 *     parse  words that are left ─► arguments and options, each of its kind                 globals may stand anywhere
 *     nearest name for whatever is not known
 *
 * Whatever is wrong is said before anything is opened, as `WrongUsage`, with the line to try instead.
 */

import { parseArgs } from 'node:util'
import { nearestName } from '../core/nearest.ts'
import type { Argument, Command, Commands, Group, Kinds, Leaf, Node, Option, Place, Root } from './command.ts'
import { WrongUsage } from './report-error.ts'

/** Taken by every command. */
export const globalOptions = {
  url: {
    kind: 'text',
    value: 'URL',
    summary: 'The server: postgres://user:password@host/database; or RILLFLOW_URL, or DATABASE_URL',
    aliases: ['database-url'],
  },
  folder: {
    kind: 'text',
    value: 'PATH',
    summary: 'The folder of an embedded store, if it is not ./.rillflow; or RILLFLOW_FOLDER',
  },
  schema: { kind: 'text', value: 'NAME', env: 'RILLFLOW_SCHEMA', summary: 'The schema that holds the store' },
  tenant: {
    kind: 'text',
    value: 'NAME',
    names: 'tenant',
    summary: 'The tenant, of a store that has tenants; or RILLFLOW_TENANT',
  },
  tenancy: {
    kind: 'text',
    value: 'KIND',
    choices: ['schema'],
    env: 'RILLFLOW_TENANCY',
    summary: 'That the store has tenants, where the configuration does not say so',
  },
  config: {
    kind: 'text',
    value: 'PATH',
    env: 'RILLFLOW_CONFIG',
    summary: 'The configuration, if it is not ./rillflow.config.ts, .js or .mjs',
  },
  json: { kind: 'flag', summary: 'JSON for programs instead of text for people' },
  color: {
    kind: 'flag',
    summary: 'Colours also where there is no terminal; --no-color for none at all',
    aliases: ['colour'],
  },
  debug: { kind: 'flag', summary: 'Where an error came from, too' },
  help: { kind: 'flag', short: 'h', summary: 'What a command takes, with an example' },
} as const

/** Added to commands that destroy something. */
export const destructiveOptions = {
  yes: { kind: 'flag', summary: 'Do it without asking', aliases: ['force'] },
  dryRun: { kind: 'flag', summary: 'Only tell what would be done' },
} as const

export interface Globals extends Omit<Place, 'usualTenant'> {
  readonly json: boolean
  readonly color: boolean | undefined
  readonly debug: boolean
  readonly help: boolean
}

/** `maxInFlight` is `--max-in-flight` on the line. */
export function flagOf(name: string): string {
  return `--${name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`
}

// The command that a line asks for: nouns and verbs first, with options of all commands between them.

export interface Found {
  /** Its name in full, hidden names resolved: `['projections', 'reset']`. */
  readonly path: readonly string[]
  readonly node: Node
  /** What is left of the line. */
  readonly rest: readonly string[]
}

export async function findCommand(root: Root, words: readonly string[]): Promise<Found> {
  const before: string[] = []
  let path: readonly string[] = []
  let node: Node = root
  let at = 0
  while (isGroup(node) && at < words.length) {
    const word = words[at]!
    if (word === '--') break
    if (word.startsWith('-') && word !== '-') {
      const takesValue = !word.includes('=') && valued.has(word)
      before.push(...words.slice(at, at + (takesValue ? 2 : 1)))
      at += takesValue ? 2 : 1
      continue
    }
    const commands: Commands = await node.commands()
    const child: Node | undefined = Object.hasOwn(commands, word) ? commands[word] : undefined
    const alias = root.aliases[[...path, word].join(' ')]
    if (child !== undefined) {
      path = [...path, word]
      node = child
    } else if (alias !== undefined) {
      path = alias
      node = root
      for (const name of alias) node = (await (node as Group).commands())[name]!
    } else throw unknownCommand(Object.keys(commands), path, word)
    at++
  }
  return { path, node, rest: [...before, ...words.slice(at)] }
}

export function isGroup(node: Node): node is Group {
  return 'commands' in node
}

/** Every command of the tree, in its order. */
export async function* allCommands(
  group: Group,
  path: readonly string[] = [],
): AsyncGenerator<{ path: string[]; leaf: Leaf }> {
  for (const [name, node] of Object.entries(await group.commands())) {
    if (isGroup(node)) yield* allCommands(node, [...path, name])
    else yield { path: [...path, name], leaf: node }
  }
}

/** Options that are followed by a value, where they stand before the command. */
const valued = new Set(
  Object.entries(globalOptions).flatMap(([name, option]) =>
    option.kind === 'flag' ? [] : [flagOf(name), ...('aliases' in option ? option.aliases.map(flagOf) : [])],
  ),
)

function unknownCommand(known: readonly string[], path: readonly string[], word: string): Error {
  const nearest = nearestName(word, known)
  const line = ['rillflow', ...path].join(' ')
  const meant = nearest === undefined ? '' : ` (did you mean "${[...path, nearest].join(' ')}"?)`
  return new WrongUsage({
    reason: `There is no command "${[...path, word].join(' ')}"${meant}`,
    hint: nearest === undefined ? `${line} --help` : `${line} ${nearest} --help`,
  })
}

// The values of one command, out of the words that follow its name.

export interface Parsed {
  readonly globals: Globals
  readonly arguments: Record<string, unknown>
  readonly options: Record<string, unknown>
}

/** Options that every command takes, looked at alone: how to answer is known before anything can be wrong. */
export function glanceAtGlobals(words: readonly string[]): Pick<Globals, 'json' | 'color' | 'debug' | 'help'> {
  const own = words.includes('--') ? words.slice(0, words.indexOf('--')) : words
  const has = (...flags: string[]): boolean => own.some(word => flags.includes(word))
  const color = has('--no-color', '--no-colour') ? false : has('--color', '--colour') ? true : undefined
  return { json: has('--json'), color, debug: has('--debug'), help: has('--help', '-h') }
}

export function parseLine(
  command: Command,
  path: readonly string[],
  words: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Parsed {
  const line = ['rillflow', ...path].join(' ')
  const own = { ...command.options, ...(command.destructive ? destructiveOptions : {}) }
  const all: Readonly<Record<string, Option>> = { ...globalOptions, ...own }
  const byFlag = flagsOf(all)
  const given = new Map<string, unknown[]>()
  const positionals: string[] = []
  for (const token of tokensOf(words, byFlag)) {
    if (token.kind === 'option-terminator') continue
    if (token.kind === 'positional') {
      positionals.push(token.value)
      continue
    }
    const known = byFlag.get(token.rawName)
    if (known === undefined) throw unknownFlag(token.rawName, byFlag, line)
    const { name, option, isNegated } = known
    if (option.kind === 'flag') {
      if (token.value !== undefined)
        throw new WrongUsage({ reason: `${token.rawName} takes no value`, hint: `${line} --help` })
      given.set(name, [!isNegated])
      continue
    }
    if (token.value === undefined)
      throw new WrongUsage({ reason: `${token.rawName} needs a value`, hint: `${line} --help` })
    const value = readValue(token.rawName, option, token.value, line)
    given.set(name, option.many ? [...(given.get(name) ?? []), value] : [value])
  }
  for (const [name, option] of Object.entries(all)) {
    const text = option.env === undefined || given.has(name) ? undefined : env[option.env] || undefined
    if (text !== undefined) given.set(name, [readValue(option.env!, option, text, line)])
  }
  return {
    globals: valuesOf(globalOptions, given, line) as unknown as Globals,
    arguments: argumentsOf(command.arguments, positionals, line),
    options: valuesOf(own, given, line),
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
    for (const each of [name, ...(option.aliases ?? [])]) {
      flags.set(flagOf(each), { name, option, isNegated: false })
      if (option.kind === 'flag') flags.set(flagOf(each).replace('--', '--no-'), { name, option, isNegated: true })
    }
  }
  return flags
}

type Token = NonNullable<ReturnType<typeof parseArgs>['tokens']>[number]

function tokensOf(words: readonly string[], byFlag: ReadonlyMap<string, Flag>): readonly Token[] {
  const options = Object.fromEntries(
    [...byFlag]
      .filter(([flag]) => flag.startsWith('--'))
      .map(([flag, { option }]) => [flag.slice(2), { type: option.kind === 'flag' ? 'boolean' : 'string' } as const]),
  )
  const { tokens } = parseArgs({ args: [...words], options, strict: false, allowPositionals: true, tokens: true })
  return tokens as readonly Token[]
}

function unknownFlag(flag: string, byFlag: ReadonlyMap<string, Flag>, line: string): Error {
  const nearest = nearestName(
    flag,
    [...byFlag.keys()].filter(each => !each.startsWith('--no-')),
  )
  const meant = nearest === undefined ? '' : ` (did you mean ${nearest}?)`
  return new WrongUsage({ reason: `"${line}" has no option ${flag}${meant}`, hint: `${line} --help` })
}

function valuesOf(
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
      // Whether there are to be colours is for the terminal to say, unless somebody does.
      const absent = option.kind === 'flag' && name !== 'color' ? false : option.default
      return [name, values === undefined ? absent : values[0]]
    }),
  )
}

function argumentsOf(
  taken: readonly Argument[],
  positionals: readonly string[],
  line: string,
): Record<string, unknown> {
  const [excess] = positionals.slice(taken.length)
  if (excess !== undefined)
    throw new WrongUsage({ reason: `"${line}" does not take "${excess}"`, hint: `${line} --help` })
  const values: Record<string, unknown> = {}
  for (const [at, argument] of taken.entries()) {
    const text = positionals[at]
    const label = argument.name.toUpperCase()
    if (text === undefined && !argument.optional)
      throw new WrongUsage({ reason: `"${line}" needs ${label}: ${argument.summary}`, hint: `${line} --help` })
    values[argument.name] =
      text === undefined
        ? undefined
        : readValue(label, { kind: argument.kind ?? 'text', choices: argument.choices }, text, line)
  }
  return values
}

// Text of the line as a value of its kind.

export function readValue(
  label: string,
  option: Pick<Option, 'kind' | 'choices'>,
  text: string,
  line: string,
): unknown {
  const value = option.kind === 'flag' ? undefined : readers[option.kind](text)
  if (value === undefined) throw wrong(label, expectations[option.kind as keyof Kinds], text, line)
  if (option.choices !== undefined && !option.choices.includes(text))
    throw wrong(label, `one of ${option.choices.join(', ')}`, text, line)
  return value
}

const units: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

const readers: { readonly [K in keyof Kinds]: (text: string) => Kinds[K] | undefined } = {
  text: text => text,
  whole: text => (/^\d+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined),
  position: text => (/^\d{1,19}$/.test(text) ? BigInt(text) : undefined),
  time(text) {
    const [, count, unit] = /^(\d+)([smhd])$/.exec(text) ?? []
    if (count !== undefined) return new Date(Date.now() - Number(count) * units[unit!]!)
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
  position: 'a position: a whole number',
  time: 'a time: 2026-01-31T12:00:00Z, or 15m for a quarter of an hour ago',
  json: `JSON, in single quotes for the shell: '{"total":99}'`,
}

function wrong(label: string, expected: string, text: string, line: string): Error {
  const shown = text.length > 60 ? `${text.slice(0, 59)}…` : text
  return new WrongUsage({
    reason: `${label} must be ${expected}, not ${JSON.stringify(shown)}`,
    hint: `${line} --help`,
  })
}
