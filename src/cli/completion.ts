/**
 * `rillflow completion`: a script for the shell, with all names in it that are the program's. It asks nobody, so it is as
 * quick as the shell, and it is made from the tree of commands, so it knows all of them. The names that are the store's
 * it reads from the file that `rillflow status` has left.
 */

import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { flagOf, globalOptions, isGroup } from './arguments.ts'
import { type Command, defineCommand, type Group, type NamedThing, type Opened, type Option } from './command.ts'
import { ownOptions } from './help.ts'

export const completionCommand: Command = defineCommand({
  description:
    'Names of commands and options are completed; those of projections, subscriptions, handlers, collections and tenants as the last `rillflow status` of this user has seen them.',
  arguments: [{ name: 'shell', summary: 'Yours', choices: ['bash', 'zsh', 'fish'] }],
  examples: [
    'source <(rillflow completion bash)',
    'rillflow completion fish > ~/.config/fish/completions/rillflow.fish',
  ],
  async run({ out, root, arguments: { shell } }) {
    const offers = await offersOf(root)
    out.print(Object.fromEntries(offers.map(({ path, words }) => [path, words])), () => scripts[shell](offers))
  },
})

/** What is offered after a path: `''` is the program itself, `events` a noun, `events tail` a command. */
interface Offer {
  readonly path: string
  readonly words: readonly string[]
  /** By the number of the argument, from 0. */
  readonly names: Readonly<Record<number, NamedThing>>
  /** Options whose next word is their value, and what it is the name of. */
  readonly valued: readonly (readonly [flag: string, names: NamedThing | undefined])[]
}

async function offersOf(group: Group, path = ''): Promise<Offer[]> {
  const commands = await group.commands()
  const found: Offer[] = [{ path, words: Object.keys(commands), names: {}, valued: [] }]
  for (const [name, node] of Object.entries(commands)) {
    const inner = path === '' ? name : `${path} ${name}`
    if (isGroup(node)) found.push(...(await offersOf(node, inner)))
    else found.push(offerOf(inner, await node.load()))
  }
  return found
}

function offerOf(path: string, command: Command): Offer {
  const options: Readonly<Record<string, Option>> = { ...ownOptions(command), ...globalOptions }
  const choices = command.arguments.flatMap(each => each.choices ?? [])
  return {
    path,
    words: [...choices, ...Object.keys(options).map(flagOf)],
    names: Object.fromEntries(command.arguments.flatMap(({ names }, at) => (names === undefined ? [] : [[at, names]]))),
    valued: Object.entries(options).flatMap(([name, { kind, names, aliases = [] }]) =>
      kind === 'flag' ? [] : [name, ...aliases].map(each => [flagOf(each), names] as const),
    ),
  }
}

/** An option is the same in all commands that have it. */
function valuedIn(offers: readonly Offer[]): { flags: string[]; named: [flag: string, names: NamedThing][] } {
  const valued = new Map(offers.flatMap(each => each.valued))
  const named = [...valued].flatMap(([flag, names]): [string, NamedThing][] =>
    names === undefined ? [] : [[flag, names]],
  )
  return { flags: [...valued.keys()], named }
}

type Script = (offers: readonly Offer[]) => string

/**
 * The line is split here, since bash takes `a:b` and an address for several words, and puts what is completed after the
 * last `:` only. Names from the file are compared and never expanded: `compgen -W` would run a `$(…)` in one.
 */
const bash: Script = offers => `_rillflow() {
  local line="\${COMP_LINE:0:COMP_POINT}" found="" option="" count=0 word offered="" wanted="" kind name
  local file="\${XDG_CACHE_HOME:-$HOME/.cache}/rillflow/names"
  line="\${line#* }"
  while [[ $line == *" "* ]]; do
    word="\${line%% *}" line="\${line#* }"
    [[ -z $word ]] && continue
    [[ -n $option ]] && option="" && continue
    case "$word" in
      ${valuedIn(offers).flags.join('|')}) option="$word" && continue ;;
      -*) continue ;;
    esac
    case "$found $word" in
${offers
  .filter(({ path }) => path !== '')
  .map(({ path }) => `      "${path.includes(' ') ? path : ` ${path}`}") found="${path}" ;;`)
  .join('\n')}
      *) count=$((count + 1)) ;;
    esac
  done
  COMPREPLY=()
  case "$found \${option:-$count}" in
${valuedIn(offers)
  .named.map(([flag, names]) => `    *" ${flag}") wanted="${names}" ;;`)
  .join('\n')}
${offers
  .flatMap(({ path, names }) => Object.entries(names).map(([at, each]) => `    "${path} ${at}") wanted="${each}" ;;`))
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
${offers.map(({ path, words }) => `    "${path}") offered="${words.join(' ')}" ;;`).join('\n')}
  esac
  COMPREPLY=($(compgen -W "$offered" -- "$line"))
}
complete -o default -F _rillflow rillflow`

const zsh: Script = offers => `autoload -U +X bashcompinit && bashcompinit\n${bash(offers)}`

const fish: Script = offers => {
  // Verbs may be called like a command of the root: `projections status`.
  const nouns = new Set(offers.flatMap(({ path }) => (path.includes(' ') ? [path.split(' ')[0]] : [])))
  const completions = offers.map(({ path, words, names }) => {
    const parts = path === '' ? [] : path.split(' ')
    const seen = parts.map(part => `__fish_seen_subcommand_from ${part}`)
    const isCommand = parts.length > 0 && !offers.some(known => known.path.startsWith(`${path} `))
    const others = !isCommand ? words : parts.length === 1 ? [...nouns] : []
    const unseen = others.length === 0 ? [] : [`not __fish_seen_subcommand_from ${others.join(' ')}`]
    const offered = [...words, ...Object.values(names).map(each => `(__rillflow_names ${each})`)]
    return `complete -c rillflow -f -n '${[...seen, ...unseen].join('; and ')}' -a '${offered.join(' ')}'`
  })
  const ofOptions = valuedIn(offers).named.map(
    ([flag, names]) => `complete -c rillflow -x -l ${flag.slice(2)} -a '(__rillflow_names ${names})'`,
  )
  return [fishNames, ...completions, ...ofOptions].join('\n')
}

const fishNames = `function __rillflow_names
  set -l cache "$XDG_CACHE_HOME"
  test -n "$cache"; or set cache ~/.cache
  test -r "$cache/rillflow/names"; and string replace -rf "^$argv[1]\\t" '' < "$cache/rillflow/names"
end`

const scripts: Readonly<Record<'bash' | 'zsh' | 'fish', Script>> = { bash, zsh, fish }

/**
 * The names that the last `rillflow status` has seen, for the shell to complete: a line for each, its kind, a tab, the name.
 * They are in the cache of the user, so that a shell reads them without starting anything or asking a database.
 */

type Names = Readonly<Record<NamedThing, readonly string[]>>

export async function namesIn({ store, tenancy, config }: Opened): Promise<Names> {
  // Tenants come last: there may be more than the file takes, and the others are few.
  return {
    projection: (await store.projections.list()).map(each => each.name),
    subscription: (await store.subscriptions.list()).map(each => each.name),
    'dead-letter': (await store.deadLetters.stats()).map(each => each.consumer),
    handler: store.workflows.registered(),
    collection: Object.keys(config.collections ?? {}),
    tenant: tenancy === undefined ? [] : (await tenancy.tenants.list()).map(each => each.tenant),
  }
}

/** All of them or none: a shell may read meanwhile. */
export async function rememberNames(names: Names): Promise<void> {
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
/** Shells put what they complete into the line as it is. What would mean something to one of them there is left out. */
const plain = /^[\p{L}\p{N}_][\p{L}\p{N}_.:/%+#-]*$/u

function linesOf(names: Names): string {
  const lines = Object.entries(names)
    .flatMap(([thing, each]) => each.filter(name => plain.test(name)).map(name => `${thing}\t${name}\n`))
    .slice(0, maxNames)
  let bytes = 0
  return lines
    .filter(line => {
      bytes += Buffer.byteLength(line)
      return bytes <= maxBytes
    })
    .join('')
}
