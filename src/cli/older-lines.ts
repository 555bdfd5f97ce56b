/**
 * Lines as operators of the older systems type them, each with the command that it is now. They are accepted and not shown.
 *
 *     projections dlq-requeue sales --id 42      ──►  dead-letters retry sales 42
 *     docs get c-1                               ──►  refused, with the line to type: documents get COLLECTION c-1
 *
 * A line is made of words alone: its noun and verb become those of the command, and each of its options an option, an
 * argument, or nothing. What cannot be made so is answered with the line to type.
 */
import { hostname } from 'node:os'

export interface OlderLine {
  /** The words of the command, and options that belong to it. */
  readonly command: readonly string[]
  /** The options that it had. Their order is that of the arguments that they become. */
  readonly options?: Readonly<Record<string, OlderOption>> | undefined
  /** The line to type, if it has other than this number of arguments. */
  readonly answer?: { readonly arguments: number; readonly line: (given: readonly string[]) => string } | undefined
}

/** The present form of an option: words made of its value. A `flag` had no value, a `switch` true, false or none. */
export interface OlderOption {
  readonly takes: 'value' | 'flag' | 'switch'
  readonly as: 'argument' | ((value: string) => readonly string[])
}

const argument: OlderOption = { takes: 'value', as: 'argument' }
const ignored: OlderOption = { takes: 'value', as: () => [] }

/** The other runners are found in the database, so there is nothing to name. */
const cluster = { '--cluster': ignored }

/** Several runners of one machine share its name, and each runner needs one of its own. */
const standbyName = (): string => `${hostname()}-${process.pid}`

function inCollection(verb: string): OlderLine {
  const line = ([id = 'ID']: readonly string[]): string => `rillflow documents ${verb} COLLECTION ${id}`
  return { command: ['documents', verb], answer: { arguments: 2, line } }
}

export const olderLines: Readonly<Record<string, OlderLine>> = {
  'schema-plan': { command: ['schema', 'plan'] },
  'schema-sync': { command: ['schema', 'sync'] },
  'schema-down': { command: ['schema', 'down'] },
  'projections metrics': { command: ['consumers', 'status'] },
  'projections reset-checkpoint': { command: ['consumers', 'reset'] },
  'projections run-once': { command: ['consumers', 'run-once'], options: { '--name': argument } },
  'projections run-until-idle': { command: ['consumers', 'run-until-idle'], options: { '--name': argument } },
  'projections run-loop': {
    command: ['run', '--only', 'projections'],
    options: {
      '--use-notify': { takes: 'switch', as: () => [] },
      '--cluster-mode': {
        takes: 'value',
        as: mode => (mode === 'hotcold' ? ['--standby', '--name', standbyName()] : []),
      },
      '--lease-ttl-secs': { takes: 'value', as: seconds => ['--lease-ms', String(Number(seconds) * 1000)] },
      ...{ '--cluster-name': ignored, '--heartbeat-secs': ignored, '--lease-grace-secs': ignored },
      '--min-cold-standbys': ignored,
    },
  },
  'projections dlq-list': { command: ['dead-letters', 'list'] },
  'projections dlq-requeue': { command: ['dead-letters', 'retry'], options: { '--id': argument } },
  'projections dlq-delete': { command: ['dead-letters', 'delete'], options: { '--id': argument } },
  'projections cluster-status': { command: ['runners', 'list'], options: cluster },
  'projections promote': {
    command: ['runners', 'promote'],
    options: { ...cluster, '--node': argument },
    answer: { arguments: 1, line: given => `rillflow runners promote ${given.at(-1) ?? 'NAME'}` },
  },
  'projections demote': {
    command: ['runners', 'demote'],
    options: { ...cluster, '--node': argument },
    answer: { arguments: 1, line: given => `rillflow runners demote ${given[1] ?? 'NAME'}` },
  },
  'subscriptions group-status': {
    command: ['subscriptions', 'status'],
    answer: {
      arguments: 1,
      line: ([name = 'NAME', group = 'GROUP']) => `rillflow subscriptions status ${name} --group ${group}`,
    },
  },
  'subscriptions set-group-max-in-flight': {
    command: ['subscriptions', 'set-max-in-flight'],
    options: { '--value': argument },
  },
  'docs get': inCollection('get'),
  'docs soft-delete': inCollection('soft-delete'),
  'docs restore': inCollection('restore'),
  'docs index-advisor': {
    command: ['documents', 'index-advisor'],
    answer: { arguments: 1, line: () => 'rillflow documents index-advisor COLLECTION --gin --field FIELD' },
  },
  'docs verify': { command: ['schema', 'check'] },
  docs: { command: ['documents'] },
  'archive mark': {
    command: ['streams', 'archive'],
    options: { '--by': { takes: 'value', as: by => ['--actor', by] } },
  },
  'archive reactivate': { command: ['streams', 'restore'] },
  'tenants archive': { command: ['tenants', 'export'] },
  'upcasters path': {
    command: ['upcasters', 'path'],
    options: {
      ...{ '--from-type': argument, '--from-version': argument, '--to-type': ignored, '--to-version': ignored },
    },
  },
  project: { command: ['run', '--only', 'projections'], options: { '--continuous': { takes: 'flag', as: () => [] } } },
  'migrate pending': { command: ['schema', 'plan'] },
  'migrate run': { command: ['schema', 'sync'] },
}

/** The words after the command, as it takes them now; or the line to type. */
export function translated(
  older: OlderLine,
  words: readonly string[],
): { readonly words: readonly string[] } | { readonly line: string } {
  const made = new Map<string, readonly string[]>()
  const left: string[] = []
  for (let at = 0; at < words.length; at++) {
    const word = words[at]!
    const equals = word.startsWith('--') ? word.indexOf('=') : -1
    const flag = equals < 0 ? word : word.slice(0, equals)
    const option = older.options !== undefined && Object.hasOwn(older.options, flag) ? older.options[flag] : undefined
    if (option === undefined) {
      left.push(word)
      continue
    }
    const next = words[at + 1]
    const hasValue =
      option.takes === 'value' ? next !== undefined : option.takes === 'switch' && /^(true|false)$/.test(next ?? '')
    if (equals < 0 && hasValue) at++
    const value = equals >= 0 ? word.slice(equals + 1) : hasValue ? next! : ''
    made.set(flag, option.as === 'argument' ? [value] : option.as(value))
  }
  // The arguments come in the order of the table, after those that the line has as arguments.
  const own = Object.keys(older.options ?? {}).flatMap(flag => made.get(flag) ?? [])
  const all = [...left, ...own]
  const given = plainArguments(all)
  if (older.answer !== undefined && given.length !== older.answer.arguments) return { line: older.answer.line(given) }
  return { words: all }
}

/** The words that are arguments: an option of a line with an answer is followed by a value, unless it is a flag. */
function plainArguments(words: readonly string[]): string[] {
  return words.filter((word, at) => {
    const before = words[at - 1]
    const isValue = before?.startsWith('--') === true && !before.includes('=') && !flags.has(before)
    return !word.startsWith('-') && !isValue
  })
}

const flags: ReadonlySet<string> = new Set(['--json', '--gin', '--debug', '--yes', '--force', '--color', '--no-color'])
