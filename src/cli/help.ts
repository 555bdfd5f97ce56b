/** Help, made from the descriptions of commands. It opens no store. */
import { destructiveOptions, flagOf, globalOptions, isGroup, kebabCase } from './arguments.ts'
import type { Argument, Command, Group, Option, Root } from './command.ts'
import type { Style } from './output/output.ts'
import { wrapped } from './output/table.ts'

export async function groupHelp(style: Style, root: Root, group: Group, path: readonly string[]): Promise<string> {
  const { bold } = style.colour
  const line = ['rillflow', ...path].join(' ')
  const commands = await group.commands()
  const rows = Object.entries(commands).map(([name, entry]): [string, string] => [
    isGroup(entry) ? `${name} ${style.symbols.ellipsis}` : name,
    entry.summary,
  ])
  const synonyms = synonymsOf(root, path)
  const verbs = `${line} ${Object.keys(commands).join('|')}`
  const isTooWide = path.length === 0 || 'Usage  '.length + verbs.length > (style.width ?? Number.POSITIVE_INFINITY)
  return [
    wrapped(`${group.summary}.`, style.width, 0),
    '',
    `${bold('Usage')}  ${isTooWide ? `${line} COMMAND` : verbs}`,
    '',
    bold('Commands'),
    list(style, rows),
    ...(synonyms.length === 0 ? [] : ['', bold('Other names'), list(style, synonyms)]),
    '',
    bold('Options of all commands'),
    list(style, optionRows(globalOptions)),
    '',
    wrapped(
      `${line} COMMAND --help shows the options of a command, with an example.${path.length === 0 ? ' rillflow --version prints the version.' : ''}`,
      style.width,
      0,
    ),
  ].join('\n')
}

/** The other names of commands under a noun: `pause` is `consumers pause`. */
export function synonymsOf({ synonyms }: Pick<Root, 'synonyms'>, path: readonly string[]): [string, string][] {
  return Object.entries(synonyms)
    .map(([name, target]) => ({ words: name.split(' '), target }))
    .filter(({ words }) => path.length > 0 && words.slice(0, -1).join(' ') === path.join(' '))
    .map(({ words, target }) => [words.at(-1)!, `The same as rillflow ${target.join(' ')}`])
}

export function commandHelp(style: Style, command: Command, path: readonly string[], summary: string): string {
  const { bold } = style.colour
  const options = ownOptions(command)
  const sections = [
    wrapped(`${summary}.`, style.width, 0),
    ...(command.description === undefined ? [] : ['', wrapped(command.description, style.width, 0)]),
    '',
    `${bold('Usage')}  ${usageOf(command, path)}`,
    ...(command.arguments.length === 0 ? [] : ['', bold('Arguments'), list(style, command.arguments.map(argumentRow))]),
    ...(Object.keys(options).length === 0 ? [] : ['', bold('Options'), list(style, optionRows(options))]),
    '',
    bold(command.examples.length === 1 ? 'Example' : 'Examples'),
    ...command.examples.map(example => `  ${example}`),
    '',
    bold('Options of all commands'),
    list(style, optionRows(globalOptions)),
  ]
  return sections.join('\n')
}

export function ownOptions(command: Command): Readonly<Record<string, Option>> {
  return { ...command.options, ...(command.destructive ? destructiveOptions : {}) }
}

export function usageOf(command: Command, path: readonly string[]): string {
  const args = command.arguments.map(({ name, optional }) =>
    optional ? `[${name.toUpperCase()}]` : name.toUpperCase(),
  )
  const options = Object.keys(ownOptions(command)).length === 0 ? [] : ['[OPTIONS]']
  return ['rillflow', ...path, ...args, ...options].join(' ')
}

export function argumentRow({ name, summary, choices }: Argument): [string, string] {
  return [name.toUpperCase(), choices === undefined ? summary : `${summary}: ${choices.map(kebabCase).join(', ')}`]
}

export function optionRows(options: Readonly<Record<string, Option>>): [string, string][] {
  return Object.entries(options).map(([name, option]) => {
    const value = option.kind === 'flag' ? '' : ` ${option.value ?? option.kind.toUpperCase()}`
    const choices = option.choices === undefined ? '' : `: ${option.choices.map(kebabCase).join(', ')}`
    const details = [
      ...(option.required ? ['required'] : []),
      ...(option.many ? ['repeatable'] : []),
      ...(option.default === undefined ? [] : [`default: ${option.default}`]),
      ...(option.env === undefined ? [] : [`or ${option.env}`]),
    ]
    const short = option.short === undefined ? '' : `-${option.short}, `
    return [
      `${short}${flagOf(name)}${value}`,
      `${option.summary}${choices}${details.length === 0 ? '' : ` (${details.join(', ')})`}`,
    ]
  })
}

/** Names, and texts next to them; below them where a line would be narrow. */
function list({ width }: Style, rows: readonly (readonly [string, string])[]): string {
  const longest = Math.max(...rows.map(([name]) => name.length))
  const indent = width === undefined || width - longest > 34 ? longest + 4 : 6
  return rows
    .map(([name, text]) => {
      const lines = wrapped(text, width, indent)
      return indent > longest ? `  ${name.padEnd(indent - 2)}${lines.slice(indent)}` : `  ${name}\n${lines}`
    })
    .join('\n')
}
