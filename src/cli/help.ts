/** Help, made from the descriptions of commands. It opens no store. */
import { destructiveOptions, flagOf, globalOptions, isGroup, kebabCase } from './arguments.ts'
import type { Argument, Command, Group, Option, Root } from './command.ts'
import type { Style } from './output/output.ts'

export async function groupHelp(style: Style, root: Root, group: Group, path: readonly string[]): Promise<string> {
  const { bold } = style.colour
  const line = ['rillflow', ...path].join(' ')
  const commands = await group.commands()
  const rows = Object.entries(commands).map(([name, entry]): [string, string] => [
    isGroup(entry) ? `${name} ${style.symbols.ellipsis}` : name,
    entry.summary,
  ])
  const synonyms = synonymsOf(root, path)
  return [
    `${group.summary}.`,
    '',
    `${bold('Usage')}  ${line} ${path.length === 0 ? 'COMMAND' : Object.keys(commands).join('|')}`,
    '',
    bold('Commands'),
    list(rows),
    ...(synonyms.length === 0 ? [] : ['', bold('Other names'), list(synonyms)]),
    '',
    bold('Options of all commands'),
    list(optionRows(globalOptions)),
    '',
    `${line} COMMAND --help shows the options of a command, with an example.${path.length === 0 ? ' rillflow --version prints the version.' : ''}`,
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
    `${summary}.`,
    ...(command.description === undefined ? [] : ['', command.description]),
    '',
    `${bold('Usage')}  ${usageOf(command, path)}`,
    ...(command.arguments.length === 0 ? [] : ['', bold('Arguments'), list(command.arguments.map(argumentRow))]),
    ...(Object.keys(options).length === 0 ? [] : ['', bold('Options'), list(optionRows(options))]),
    '',
    bold(command.examples.length === 1 ? 'Example' : 'Examples'),
    ...command.examples.map(example => `  ${example}`),
    '',
    bold('Options of all commands'),
    list(optionRows(globalOptions)),
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

function list(rows: readonly (readonly [string, string])[]): string {
  const width = Math.max(...rows.map(([name]) => name.length))
  return rows.map(([name, text]) => `  ${name.padEnd(width)}  ${text}`).join('\n')
}
