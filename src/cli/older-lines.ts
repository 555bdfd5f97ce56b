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
  /** The line to type, whatever else stands in it; undefined if it can be read as it is. */
  readonly instead?: ((words: readonly string[]) => Answer | undefined) | undefined
  /** The line to type, if it has other than this number of arguments. */
  readonly answer?: { readonly arguments: number; readonly line: (given: readonly string[]) => string } | undefined
}

export interface Answer {
  readonly line: string
  /** The difference to the older line, as a sentence without its end. */
  readonly reason?: string | undefined
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

const declared = 'Columns and indexes are declared with the collection, and a sync makes and fills them'
const flagOfStream = 'Archiving is a flag of a stream, so no events are moved and nothing is redirected'

function always(command: readonly string[], reason: string, line = `rillflow ${command.join(' ')}`): OlderLine {
  return { command, instead: () => ({ line, reason }) }
}

export const olderLines: Readonly<Record<string, OlderLine>> = {
  'schema-plan': { command: ['schema', 'plan'] },
  'schema-sync': { command: ['schema', 'sync'] },
  'schema-down': { command: ['schema', 'down'] },
  'projections list': {
    command: ['projections', 'list'],
    instead: words =>
      words.includes('--all-tenants')
        ? { line: 'rillflow projections list --tenant NAME', reason: 'A list is that of one tenant' }
        : undefined,
  },
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
    options: { '--value': { takes: 'value', as: value => (value === 'none' ? [] : [value]) } },
    instead(words) {
      const [name = 'NAME', group, limit = ''] = words
      if (words.some(word => word.startsWith('-')) || group === undefined) return undefined
      const line = ['rillflow subscriptions set-max-in-flight', name, limit === 'none' ? '' : limit, '--group', group]
      return { line: line.filter(word => word !== '').join(' ') }
    },
  },
  'subscriptions tail': { command: ['subscriptions', 'tail'], options: { '--max-in-flight': ignored } },
  'docs get': inCollection('get'),
  'docs soft-delete': inCollection('soft-delete'),
  'docs restore': inCollection('restore'),
  'docs index-advisor': {
    command: ['documents', 'index-advisor'],
    answer: { arguments: 1, line: () => 'rillflow documents index-advisor COLLECTION --gin --field FIELD' },
  },
  'docs explain-sql': {
    command: ['documents', 'explain'],
    instead: words => ({
      line: `rillflow documents explain COLLECTION --where FILTER${words.includes('--analyze') ? ' --analyze' : ''}`,
      reason: 'A plan is that of a query of a collection',
    }),
  },
  'docs duplicated-fields': {
    command: ['documents', 'index-advisor'],
    instead: ([verb, field = 'FIELD']) => {
      if (verb === 'suggest') return { line: `rillflow documents index-advisor COLLECTION --field ${field}` }
      return { line: verb === 'backfill' ? 'rillflow schema sync' : 'rillflow documents collections', reason: declared }
    },
  },
  'docs verify': { command: ['schema', 'check'] },
  docs: { command: ['documents'] },
  'archive mark': {
    command: ['streams', 'archive'],
    options: { '--by': { takes: 'value', as: by => ['--actor', by] } },
  },
  'archive status': {
    command: ['streams', 'list', '--state', 'archived'],
    answer: { arguments: 0, line: ([stream = 'STREAM']) => `rillflow streams show ${stream}` },
  },
  'archive move': always(['upkeep'], `${flagOfStream}; retention.archivedStreamsMs says when they are deleted`),
  'archive redirect': always(['streams', 'archive'], flagOfStream, 'rillflow streams archive STREAM'),
  'archive partition': always(['streams', 'archive'], flagOfStream, 'rillflow streams archive STREAM'),
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
  'migrate list': { command: ['schema', 'check'] },
  'migrate history': { command: ['schema', 'check'] },
  'migrate generate': always(['schema', 'plan'], 'The migrations of its own tables come with the package'),
  'migrate rollback': always(['schema', 'check'], 'Migrations only go forward; a backup goes back'),
  'migrate run': {
    command: ['schema', 'sync'],
    instead: words => (words.includes('--dry-run') ? { line: 'rillflow schema plan' } : undefined),
  },
}

/** Options that there are no longer: what to type, or where it is configured. */
export const olderOptions: Readonly<Record<string, { readonly takesValue: boolean; readonly hint: string }>> = {
  '--tenant-schema': { takesValue: true, hint: '--tenant NAME, whose schema follows from its name' },
  '--slow-query-ms': { takesValue: true, hint: 'slowStatementMs in rillflow.config.ts' },
  '--slow-query-explain': { takesValue: false, hint: 'explainSlow in rillflow.config.ts' },
  '--db-path': { takesValue: true, hint: '--folder PATH' },
  '--verbose': { takesValue: false, hint: '--debug' },
}

/** The words after the command, as it takes them now; or the line to type. */
export function translated(older: OlderLine, words: readonly string[]): { readonly words: readonly string[] } | Answer {
  const instead = older.instead?.(words)
  if (instead !== undefined) return instead
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
