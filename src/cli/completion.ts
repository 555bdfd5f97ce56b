/**
 * `rillflow completion`: a script that completes commands, options and names in a shell.
 *
 *     tree of commands ──► script, with all commands and options in it     the shell needs no process to complete
 *     rillflow status  ──► names of the store, in a file of the user       the script reads it at each Tab
 *
 * Guarantees:
 * - Nothing is executed while a line is completed: no process, no query, and no text from the file.
 * - The file with names is small (1,000 names, 64 KB) and can be read by the user only.
 */

import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import type { ConsumerKind } from '../consumers/consumer.ts'
import { ownerName } from '../consumers/dead-letters/owner.ts'
import { everyItem } from '../core/page.ts'
import { flagOf, globalOptions, isGroup, kebabCase } from './arguments.ts'
import {
  type Aliases,
  type Command,
  defineCommand,
  type Group,
  type NameKind,
  type Opened,
  type Option,
} from './command.ts'
import { tenantNames } from './every-tenant.ts'
import { ownOptions } from './help.ts'

export const completion: Command = defineCommand({
  description:
    'The script completes commands and options. It also completes the names of consumers, projections, subscriptions, handlers, collections and tenants, as the last `rillflow status` of this user saved them.',
  arguments: [{ name: 'shell', summary: 'Your shell', choices: ['bash', 'zsh', 'fish'] }],
  examples: [
    'source <(rillflow completion bash)',
    'rillflow completion fish > ~/.config/fish/completions/rillflow.fish',
  ],
  async run({ out, root, arguments: { shell } }) {
    const contexts = withSynonyms(await contextsOf(root), root.synonyms)
    out.print(Object.fromEntries(contexts.map(({ path, words }) => [path, words])), () => scripts[shell](contexts))
  },
})

/** The words that can follow a path: `''` is the program itself, `events` a noun, `events tail` a command. */
interface Context {
  readonly path: string
  readonly words: readonly string[]
  /** The kinds of names that arguments take, by the index of the argument. */
  readonly argumentNames: Readonly<Record<number, NameKind>>
  /** The options that are followed by a value, and the kind of name that it is. */
  readonly valueOptions: readonly (readonly [flag: string, nameKind: NameKind | undefined])[]
}

async function contextsOf(group: Group, path = ''): Promise<Context[]> {
  const commands = await group.commands()
  const contexts: Context[] = [{ path, words: Object.keys(commands), argumentNames: {}, valueOptions: [] }]
  for (const [name, entry] of Object.entries(commands)) {
    const inner = path === '' ? name : `${path} ${name}`
    if (isGroup(entry)) contexts.push(...(await contextsOf(entry, inner)))
    else contexts.push(contextOf(inner, await entry.load()))
  }
  return contexts
}

/** A synonym is completed as the command that it stands for. */
function withSynonyms(contexts: readonly Context[], synonyms: Aliases): Context[] {
  const names = Object.keys(synonyms)
  const ofSynonyms = names.map(path => ({ ...contexts.find(each => each.path === synonyms[path]!.join(' '))!, path }))
  const wordsUnder = (noun: string): string[] =>
    names.filter(name => noun !== '' && name.startsWith(`${noun} `)).map(name => name.slice(noun.length + 1))
  return [...contexts.map(each => ({ ...each, words: [...each.words, ...wordsUnder(each.path)] })), ...ofSynonyms]
}

function contextOf(path: string, command: Command): Context {
  const options: Readonly<Record<string, Option>> = { ...ownOptions(command), ...globalOptions }
  const choices = command.arguments.flatMap(argument => (argument.choices ?? []).map(kebabCase))
  return {
    path,
    words: [...choices, ...Object.keys(options).map(flagOf)],
    argumentNames: Object.fromEntries(
      command.arguments.flatMap(({ completes }, at) => (completes === undefined ? [] : [[at, completes]])),
    ),
    valueOptions: Object.entries(options).flatMap(([name, { kind, completes, aliases = [] }]) =>
      kind === 'flag' ? [] : [name, ...aliases].map(spelling => [flagOf(spelling), completes] as const),
    ),
  }
}

/** An option means the same in all commands that have it. */
function valueOptionsIn(contexts: readonly Context[]): { flags: string[]; named: [flag: string, NameKind][] } {
  const options = new Map(contexts.flatMap(({ valueOptions }) => valueOptions))
  const named = [...options].flatMap(([flag, nameKind]): [string, NameKind][] =>
    nameKind === undefined ? [] : [[flag, nameKind]],
  )
  return { flags: [...options.keys()], named }
}

type Script = (contexts: readonly Context[]) => string

/**
 * The script splits the line itself, because bash splits `a:b` and an address into several words, and inserts a completion
 * only after the last `:`. Names from the file are compared and never expanded: `compgen -W` would execute a `$(…)` in one.
 */
const bash: Script = contexts => `_rillflow() {
  local line="\${COMP_LINE:0:COMP_POINT}" found="" option="" count=0 word words="" wanted="" kind name
  local file="\${XDG_CACHE_HOME:-$HOME/.cache}/rillflow/names"
  line="\${line#* }"
  while [[ $line == *" "* ]]; do
    word="\${line%% *}" line="\${line#* }"
    [[ -z $word ]] && continue
    [[ -n $option ]] && option="" && continue
    case "$word" in
      ${valueOptionsIn(contexts).flags.join('|')}) option="$word" && continue ;;
      -*) continue ;;
    esac
    case "$found $word" in
${contexts
  .filter(({ path }) => path !== '')
  .map(({ path }) => `      "${path.includes(' ') ? path : ` ${path}`}") found="${path}" ;;`)
  .join('\n')}
      *) count=$((count + 1)) ;;
    esac
  done
  COMPREPLY=()
  case "$found \${option:-$count}" in
${valueOptionsIn(contexts)
  .named.map(([flag, nameKind]) => `    *" ${flag}") wanted="${nameKind}" ;;`)
  .join('\n')}
${contexts
  .flatMap(({ path, argumentNames }) =>
    Object.entries(argumentNames).map(([at, nameKind]) => `    "${path} ${at}") wanted="${nameKind}" ;;`),
  )
  .join('\n')}
  esac
  if [[ -n $wanted && -r $file ]]; then
    word=""
    [[ \${COMP_WORDBREAKS:-} == *:* ]] && word="\${line%"\${line##*:}"}"
    while IFS=$'\\t' read -r kind name; do
      [[ $kind == "$wanted" && $name == "$line"* ]] && COMPREPLY+=("\${name#"$word"}")
    done < "$file"
  fi
  [[ -n $option || \${#COMPREPLY[@]} -gt 0 ]] && return
  case "$found" in
${contexts.map(({ path, words }) => `    "${path}") words="${words.join(' ')}" ;;`).join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$line"))
}
complete -o default -F _rillflow rillflow`

const zsh: Script = contexts => `autoload -U +X bashcompinit && bashcompinit\n${bash(contexts)}`

const fish: Script = contexts => {
  // A verb may have the name of a command: `projections status` and `status`.
  const nouns = new Set(contexts.flatMap(({ path }) => (path.includes(' ') ? [path.split(' ')[0]] : [])))
  const rules = contexts.map(({ path, words, argumentNames }) => {
    const parts = path === '' ? [] : path.split(' ')
    const seen = parts.map(part => `__fish_seen_subcommand_from ${part}`)
    const isCommand = parts.length > 0 && !contexts.some(other => other.path.startsWith(`${path} `))
    const excluded = !isCommand ? words : parts.length === 1 ? [...nouns] : []
    const unseen = excluded.length === 0 ? [] : [`not __fish_seen_subcommand_from ${excluded.join(' ')}`]
    const names = Object.values(argumentNames).map(nameKind => `(__rillflow_names ${nameKind})`)
    return `complete -c rillflow -f -n '${[...seen, ...unseen].join('; and ')}' -a '${[...words, ...names].join(' ')}'`
  })
  const optionRules = valueOptionsIn(contexts).named.map(
    ([flag, nameKind]) => `complete -c rillflow -x -l ${flag.slice(2)} -a '(__rillflow_names ${nameKind})'`,
  )
  return [fishNames, ...rules, ...optionRules].join('\n')
}

const fishNames = `function __rillflow_names
  set -l cache "$XDG_CACHE_HOME"
  test -n "$cache"; or set cache ~/.cache
  test -r "$cache/rillflow/names"; and string replace -rf "^$argv[1]\\t" '' < "$cache/rillflow/names"
end`

const scripts: Readonly<Record<'bash' | 'zsh' | 'fish', Script>> = { bash, zsh, fish }

type Names = Readonly<Record<NameKind, readonly string[]>>

/** The names in a store. Tenants come last: there may be more of them than the file takes, and the others are few. */
export async function collectNames({ store, tenancy, config }: Opened): Promise<Names> {
  const consumers = (await store.consumers.list({ limit: 1_000 })).items.filter(({ kind }) => kind !== 'dispatcher')
  const namesOf = (wanted: ConsumerKind): string[] =>
    consumers.flatMap(({ kind, name }) => (kind === wanted ? name : []))
  return {
    consumer: unique(consumers.map(({ name }) => name)),
    projection: unique(namesOf('projection')),
    subscription: unique(namesOf('subscription')),
    'dead-letter': (await everyItem(store.deadLetters.stats)).map(ownerName),
    handler: store.workflows.handlers.registered(),
    collection: (config.collections ?? []).map(collection => collection.name),
    tenant: tenancy === undefined ? [] : await tenantNames(tenancy.tenants),
  }
}

/** Replaces the file in one step, because a shell may read it at any time. Each line is a kind, a tab and a name. */
export async function saveNames(names: Names): Promise<void> {
  const path = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'rillflow', 'names')
  const draft = `${path}.${process.pid}`
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  try {
    await writeFile(draft, linesOf(names), { mode: 0o600 })
    await rename(draft, path)
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
}

const maxNames = 1000
const maxBytes = 64 * 1024
/** A shell inserts a completion into the line as it is, so names with characters that mean something to a shell are left out. */
const harmless = /^[\p{L}\p{N}_][\p{L}\p{N}_.:/%+#-]*$/u

function linesOf(names: Names): string {
  const lines = Object.entries(names)
    .flatMap(([kind, own]) => own.filter(name => harmless.test(name)).map(name => `${kind}\t${name}\n`))
    .slice(0, maxNames)
  let bytes = 0
  return lines
    .filter(line => {
      bytes += Buffer.byteLength(line)
      return bytes <= maxBytes
    })
    .join('')
}

function unique(names: readonly string[]): string[] {
  return [...new Set(names)]
}
