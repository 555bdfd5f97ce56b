/** The command that a line asks for: nouns and verbs first, with options of all commands between them. */
import { nearestName } from '../../core/nearest.ts'
import type { Group, Leaf, Node } from '../command.ts'
import { WrongUsage } from '../usage.ts'
import { flagOf, globalOptions } from './arguments.ts'

export interface Found {
  /** Its name in full, hidden names resolved: `['projections', 'reset']`. */
  readonly path: readonly string[]
  readonly node: Node
  /** What is left of the line. */
  readonly rest: readonly string[]
}

export function findCommand(root: Group, words: readonly string[]): Found {
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
    const child: Node | undefined = Object.hasOwn(node.commands, word) ? node.commands[word] : undefined
    const alias: readonly string[] | undefined = node.aliases?.[word]
    if (child !== undefined) {
      path = [...path, word]
      node = child
    } else if (alias !== undefined) {
      path = alias
      node = alias.reduce<Node>((from, name) => (from as Group).commands[name]!, root)
    } else throw unknownCommand(node, path, word)
    at++
  }
  return { path, node, rest: [...before, ...words.slice(at)] }
}

export function isGroup(node: Node): node is Group {
  return 'commands' in node
}

/** Every command of the tree, in its order. */
export function* allCommands(group: Group, path: readonly string[] = []): Generator<{ path: string[]; leaf: Leaf }> {
  for (const [name, node] of Object.entries(group.commands)) {
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

function unknownCommand(group: Group, path: readonly string[], word: string): Error {
  const nearest = nearestName(word, Object.keys(group.commands))
  const line = ['rillflow', ...path].join(' ')
  const meant = nearest === undefined ? '' : ` (did you mean "${[...path, nearest].join(' ')}"?)`
  return new WrongUsage({
    reason: `There is no command "${[...path, word].join(' ')}"${meant}`,
    hint: nearest === undefined ? `${line} --help` : `${line} ${nearest} --help`,
  })
}
