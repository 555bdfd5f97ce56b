/**
 * Reports an error to people and programs: what happened, what to try, its code, and where it is described.
 *
 *     error: There is no stream order-9. [stream_not_found]
 *       try: rillflow streams list
 *       see: docs/reference/errors/stream_not_found.md
 *
 * Messages come from the library. Where they advise a call, the command for it is given here. The errors of the command line
 * itself are defined here too.
 */
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineError, type ErrorKind, errorPage, InvalidOption, isRillflowError } from '../core/errors.ts'
import type { ExitCode } from './command.ts'
import { type OutputOptions, printable, styleFor, toJson } from './output/output.ts'

export const WrongUsage: ErrorKind<'wrong_usage', { reason: string; hint?: string | undefined }> = defineError(
  'wrong_usage',
  d => `${d.reason}.`,
)
export const ConfigFailed: ErrorKind<'config_failed', { path: string; reason: string; hint?: string | undefined }> =
  defineError('config_failed', d => `Cannot use ${d.path}: ${d.reason}.`)
export const NothingFound: ErrorKind<'nothing_found', { what: string; given: string; hint?: string | undefined }> =
  defineError('nothing_found', d => `There is no ${d.what} ${JSON.stringify(d.given)}.`)
export const NotConfirmed: ErrorKind<'not_confirmed', object> = defineError(
  'not_confirmed',
  () => 'Nothing was done, because the answer was not yes.',
)
export const NothingRegistered: ErrorKind<'nothing_registered', { what: string; path: string | undefined }> =
  defineError('nothing_registered', d =>
    d.path === undefined
      ? `There is nothing to run: no configuration file was found, so there are no ${d.what}.`
      : `There is nothing to run: ${d.path} has no ${d.what}.`,
  )

export interface ReportOptions extends Omit<OutputOptions, 'stdout'> {
  readonly isDebug: boolean
}

/** Prints an error, and returns the exit code of the process. */
export function reportError(error: unknown, { stderr, env, color, isJson, isDebug }: ReportOptions): ExitCode {
  const { colour } = styleFor({ stream: stderr, env, color })
  const message = error instanceof Error ? error.message : String(error)
  const code = isRillflowError(error) ? error.code : 'failed'
  const hint = hintFor(error)
  const docs = docsOf(error)
  if (isJson) {
    const { hint: _, name, ...data } = isRillflowError(error) ? error.toJSON() : { message }
    stderr.write(`${toJson({ error: { ...data, code, try: hint, docs } })}\n`)
  } else {
    const tag = isRillflowError(error) ? colour.dim(` [${code}]`) : ''
    stderr.write(`${printable(`${colour.red('error:')} ${message}${tag}`)}\n`)
    if (hint !== undefined) stderr.write(`${printable(`${colour.dim('  try:')} ${hint}`)}\n`)
    if (docs !== undefined) stderr.write(colour.dim(`  see: ${docs}\n`))
  }
  if (isDebug && error instanceof Error) stderr.write(`${printable(stackOf(error))}\n`)
  return exitCodes[code] ?? 1
}

const exitCodes: Readonly<Record<string, ExitCode>> = {
  wrong_usage: 2,
  config_failed: 2,
  nothing_registered: 2,
  invalid_option: 2,
  invalid_name: 2,
  invalid_filter: 2,
  invalid_tenant_name: 2,
  tenant_required: 2,
  tenancy_required: 2,
  schema_newer: 4,
}

/** The commands to try, by the code of the error. */
const hints: Readonly<Record<string, string>> = {
  schema_missing: 'rillflow schema sync',
  schema_outdated: 'rillflow schema plan, then rillflow schema sync',
  schema_drift: 'rillflow schema check',
  collection_not_synced: 'rillflow schema sync',
  collection_not_found: 'rillflow documents collections',
  projection_not_synced: 'rillflow schema sync',
  consumer_not_found: 'rillflow consumers list',
  dead_letter_not_found: 'rillflow dead-letters list',
  handler_not_found: 'rillflow handlers list',
  execution_not_ready: 'rillflow workflows executions',
  schedule_not_found: 'rillflow schedules list',
  runner_not_found: 'rillflow runners list',
  stream_not_found: 'rillflow streams list',
  stream_archived: 'rillflow streams restore STREAM',
  tenant_required: '--tenant NAME; rillflow tenants list shows the tenants',
  tenant_not_found: 'rillflow tenants list, or rillflow tenants ensure NAME to create it',
  tenant_elsewhere: 'rillflow tenants move NAME SERVER',
  tenant_moving: 'run the same command again in a moment',
  directory_missing: 'rillflow tenants ensure NAME',
  server_not_found: 'add it to `servers` of the tenancy in the configuration, then rillflow tenants ensure NAME',
  tenancy_required: `a tenancy with a directory in the configuration: tenancy: { directory: 'postgres://…', servers }`,
  permission_denied:
    'the role that owns the schema, or for the first sync a role with the CREATE privilege on the database',
  backup_unsupported: 'rillflow export --output DIR, or pg_dump',
}

function hintFor(error: unknown): string | undefined {
  if (!isRillflowError(error)) return undefined
  const { hint } = error as { hint?: unknown }
  if (error instanceof InvalidOption && error.option === 'url') return urlHint
  if (error instanceof NothingRegistered)
    return error.path === undefined ? 'rillflow init' : `add some to ${error.path}`
  return typeof hint === 'string' ? hint : hints[error.code]
}

const urlHint = '--url postgres://user:password@localhost:5432/shop, or no --url for the embedded store in ./.rillflow'

/** The page of the reference that comes with the package, as a path that works from the current folder. */
function docsOf(error: unknown): string | undefined {
  if (!isRillflowError(error) || isOfCommandLine(error)) return undefined
  const page = fileURLToPath(new URL(`../../${errorPage(error.code)}`, import.meta.url))
  const path = relative('', page)
  return path.startsWith('..') ? page : path
}

/** The errors of the command line need no page of their own. */
function isOfCommandLine(error: unknown): boolean {
  const kinds = [WrongUsage, ConfigFailed, NothingFound, NotConfirmed, NothingRegistered]
  return kinds.some(kind => error instanceof kind)
}

function stackOf(error: Error): string {
  const cause = error.cause instanceof Error ? `\ncaused by ${stackOf(error.cause)}` : ''
  return `${error.stack ?? error.message}${cause}`
}
