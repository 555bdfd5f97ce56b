/**
 * The doctor: looks for everything that is wrong with a store, or will be, changes nothing, and says how to fix each
 * problem it finds.
 *
 *     schema ─ server ─ transactions ─ tables ─ sizes ─ consumers ─ workflows          each a list of checks
 *
 * A check that finds no problem gives a finding of level `ok`, so that the report shows every check. A check that
 * cannot be made, because a permission is missing or because the schema is not as it should be, gives a warning that
 * says so; the other checks are made.
 */

import type { Consumers } from '../../consumers/consumers.ts'
import { throwIfAborted } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { checkWhole } from '../../core/options.ts'
import type { Log } from '../../events/log.ts'
import type { Schema } from '../../schema/schema.ts'
import { checkConsumers } from './consumers.ts'
import { checkSchema, checkTables } from './schema.ts'
import { checkServer } from './server.ts'
import { checkSizes } from './sizes.ts'
import { checkTransactions } from './transactions.ts'
import { checkWorkflows } from './workflows.ts'

export interface DoctorOptions {
  /** From which age on an open transaction is reported: it keeps vacuum from removing rows. Default 300 000. */
  oldTransactionMs?: number | undefined
  /** From which lag on a consumer is reported. Default 60 000. */
  lagMs?: number | undefined
  signal?: AbortSignal | undefined
}

export interface Diagnosis {
  /** Whether there are no errors. There may be warnings. */
  readonly isHealthy: boolean
  readonly findings: readonly Finding[]
}

export interface Finding {
  /** The name of the check: `schema`, `consumers.lag`. */
  readonly check: string
  readonly level: 'ok' | 'warning' | 'error'
  readonly message: string
  /** How to fix it: a call, a statement or a command. Undefined if there is no problem. */
  readonly fix: string | undefined
  /** The ids or names that it is about, where the message has no room for them. */
  readonly of?: readonly string[] | undefined
}

export interface DoctorParts {
  readonly log: Log
  readonly schema: Schema
  readonly consumers: Pick<Consumers, 'hasCodeFor'>
}

export type DoctorLimits = Required<{ readonly [K in 'oldTransactionMs' | 'lagMs']: number }>

export interface Check {
  readonly name: string
  /** The message if no problem is found. */
  readonly ok: string
  find(): Promise<readonly FoundProblem[]>
}

export interface FoundProblem {
  readonly level: 'warning' | 'error'
  readonly message: string
  readonly fix: string
  readonly of?: readonly string[] | undefined
}

export async function examine(parts: DoctorParts, options: DoctorOptions = {}): Promise<Diagnosis> {
  const { oldTransactionMs = 300_000, lagMs = 60_000, signal } = options
  checkWhole('oldTransactionMs', oldTransactionMs, 0)
  checkWhole('lagMs', lagMs, 0)
  parts.log.database.refuseInsideTransaction('doctor')
  const findings = await runChecks(checksOf(parts, { oldTransactionMs, lagMs }), { signal })
  return { isHealthy: !findings.some(finding => finding.level === 'error'), findings }
}

/** One after the other. `onProgress` is called after each. */
export async function runChecks(
  checks: readonly Check[],
  { signal, onProgress }: { signal?: AbortSignal | undefined; onProgress?: OnChecked | undefined },
): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const [at, { name, ok, find }] of checks.entries()) {
    throwIfAborted(signal)
    const problems = await find().catch((error: unknown) => [checkFailed(error)])
    if (problems.length === 0) findings.push({ check: name, level: 'ok', message: ok, fix: undefined })
    else findings.push(...problems.map(problem => ({ check: name, ...problem })))
    onProgress?.({ done: at + 1, total: checks.length })
  }
  return findings
}

export type OnChecked = (progress: { readonly done: number; readonly total: number }) => void

function checksOf(parts: DoctorParts, limits: DoctorLimits): Check[] {
  const { log } = parts
  return [
    ...checkSchema(parts),
    ...checkServer(log),
    ...checkTransactions(log, limits),
    ...checkTables(log),
    ...checkSizes(log),
    ...checkConsumers(parts, limits),
    ...checkWorkflows(log),
  ]
}

function checkFailed(error: unknown): FoundProblem {
  // Without the store itself there is nothing to examine.
  if (isRillflowError(error, 'store_closed')) throw error
  const reason = error instanceof Error ? error.message : String(error)
  return {
    level: 'warning',
    message: `This check could not be made: ${reason}`,
    fix: 'Follow the message. On a server, grant pg_read_all_stats to the role of this program.',
  }
}
