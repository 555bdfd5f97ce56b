/** The values of one command, out of the words that follow its name. */
import { parseArgs } from 'node:util'
import { nearestName } from '../../core/nearest.ts'
import type { Argument, Command, Option } from '../command.ts'
import { WrongUsage } from '../usage.ts'
import { destructiveOptions, flagOf, type Globals, globalOptions } from './arguments.ts'
import { readValue } from './value.ts'

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
