/**
 * An error as people and programs get it: what happened, what to try, the code to look for and where it is described. The
 * messages are the store's own; what they advise in code is said here as a command.
 */

import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineError, type ErrorKind, isRillflowError } from '../core/errors.ts'
import type { ExitCode } from './command.ts'
import { type OutputOptions, styleFor, toJson } from './output/output.ts'

// The errors of the command line itself; all others come from the store.

export const WrongUsage: ErrorKind<'wrong_usage', { reason: string; hint?: string | undefined }> = defineError(
  'wrong_usage',
  d => `${d.reason}.`,
)
export const ConfigFailed: ErrorKind<'config_failed', { path: string; reason: string; hint?: string | undefined }> =
  defineError('config_failed', d => `${d.path} could not be used: ${d.reason}.`)
export const NothingFound: ErrorKind<'nothing_found', { what: string; given: string; hint?: string | undefined }> =
  defineError('nothing_found', d => `There is no ${d.what} ${JSON.stringify(d.given)}.`)
export const NotConfirmed: ErrorKind<'not_confirmed', object> = defineError(
  'not_confirmed',
  () => 'Nothing was done: the question was not answered with yes.',
)
export const NothingRegistered: ErrorKind<'nothing_registered', { what: string; path: string | undefined }> =
  defineError('nothing_registered', d =>
    d.path === undefined
      ? `There is nothing to run: no rillflow.config.ts was found, so this program has no ${d.what}.`
      : `There is nothing to run: ${d.path} has no ${d.what}.`,
  )

/** These say all there is to say; the store's have a section each in the reference of errors. */
export function isOfCommandLine(error: unknown): boolean {
  const kinds = [WrongUsage, ConfigFailed, NothingFound, NotConfirmed, NothingRegistered]
  return kinds.some(kind => error instanceof kind)
}

export interface ReportOptions extends Omit<OutputOptions, 'stdout'> {
  readonly isDebug: boolean
}

/** Prints it, and says how the process ends. */
export function reportError(error: unknown, { stderr, env, color, isJson, isDebug }: ReportOptions): ExitCode {
  const { colour } = styleFor({ stream: stderr, env, color })
  const message = error instanceof Error ? error.message : String(error)
  const code = isRillflowError(error) ? error.code : 'failed'
  const hint = hintFor(error)
  const docs = docsOf(error)
  if (isJson) {
    const data = isRillflowError(error) ? error.toJSON() : { message }
    const { hint: _, name, ...told } = data
    stderr.write(`${toJson({ error: { ...told, code, try: hint, docs } })}\n`)
  } else {
    const tag = isRillflowError(error) ? colour.dim(` [${code}]`) : ''
    stderr.write(`${colour.red('error:')} ${message}${tag}\n`)
    if (hint !== undefined) stderr.write(`${colour.dim('  try:')} ${hint}\n`)
    if (docs !== undefined) stderr.write(colour.dim(`  see: ${docs}\n`))
  }
  if (isDebug && error instanceof Error) stderr.write(`${stackOf(error)}\n`)
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

/** Commands, where the library's messages tell of calls. */
const hints: Readonly<Record<string, string>> = {
  schema_missing: 'rillflow schema sync',
  schema_outdated: 'rillflow schema plan, then rillflow schema sync',
  schema_drift: 'rillflow schema check',
  collection_not_synced: 'rillflow schema sync',
  projection_not_synced: 'rillflow schema sync',
  consumer_not_found: 'rillflow projections list',
  subscription_not_found: 'rillflow subscriptions list',
  dead_letter_not_found: 'rillflow dead-letters list',
  handler_not_found: 'rillflow workflows workers',
  schedule_not_found: 'rillflow workflows schedules',
  node_not_found: 'rillflow daemons list',
  stream_not_found: 'rillflow streams list',
  stream_archived: 'rillflow streams restore STREAM',
  tenant_required: '--tenant NAME; rillflow tenants list shows who there is',
  tenant_not_found: 'rillflow tenants list, or rillflow tenants ensure NAME to make it',
  tenant_elsewhere: 'rillflow tenants move NAME SERVER',
  tenant_moving: 'the same again in a moment',
  directory_missing: 'rillflow tenants ensure NAME',
  server_not_found: 'add it to `servers` of the tenancy in the configuration, then rillflow tenants ensure NAME',
  tenancy_required: `a tenancy with a directory in the configuration: tenancy: { directory: 'postgres://…', servers }`,
  backup_unsupported: 'rillflow export --output DIR, or pg_dump',
}

/** What the database refuses, by its SQLSTATE. */
const refusals: Readonly<Record<string, string>> = {
  '42501': 'another role: that which owns the schema, or for the first sync one that may create on the database',
}

function hintFor(error: unknown): string | undefined {
  if (!isRillflowError(error)) return undefined
  if (isRillflowError(error, 'database_failed')) return refusals[(error as { sqlState?: string }).sqlState ?? '']
  const { hint } = error as { hint?: unknown }
  if (error instanceof NothingRegistered)
    return error.path === undefined ? 'rillflow init' : `add some to ${error.path}`
  return typeof hint === 'string' ? hint : hints[error.code]
}

/** Its section in the reference that comes with the package, as a path that works from here. */
function docsOf(error: unknown): string | undefined {
  if (!isRillflowError(error) || isOfCommandLine(error)) return undefined
  const page = fileURLToPath(new URL('../../docs/reference/errors.md', import.meta.url))
  const near = relative('', page)
  return `${near.startsWith('..') ? page : near}#${error.code}`
}

function stackOf(error: Error): string {
  const cause = error.cause instanceof Error ? `\ncaused by ${stackOf(error.cause)}` : ''
  return `${error.stack ?? error.message}${cause}`
}
