/**
 * The doctor: looks at everything that may go wrong with a store before somebody notices, changes nothing, and says what mends
 * each thing it finds.
 *
 *     schema ─ server ─ tables ─ log ─ consumers ─ workflows ─ folder          each a list of checks, each its own finding
 *
 * A check without anything wrong is a finding of level `ok`, so that a report shows what was looked at. One that cannot be
 * made, for want of a permission or because the schema is not what it should be, is a warning that says so.
 */
import { isRillflowError } from '../../core/errors.ts'
import { throwIfAborted } from '../../core/lifecycle.ts'
import { checkWhole } from '../../core/whole.ts'
import type { Log } from '../../events/log.ts'
import type { Schema } from '../../schema/schema.ts'
import { checkConsumers } from './consumers.ts'
import { checkSchema } from './schema.ts'
import { checkServer } from './server.ts'
import { checkTables } from './tables.ts'
import { checkTransactions } from './transactions.ts'
import { checkWorkflows } from './workflows.ts'

export interface DoctorOptions {
  /** A transaction open for longer keeps others from their work: vacuum, above all. Default 300 000. */
  oldTransactionMs?: number | undefined
  /** A consumer this far behind does not catch up by itself. Default 60 000. */
  lagMs?: number | undefined
  signal?: AbortSignal | undefined
}

export interface Diagnosis {
  /** Whether there is no error; warnings are for when there is time. */
  readonly isHealthy: boolean
  readonly findings: readonly Finding[]
}

export interface Finding {
  /** What was looked at: `schema`, `consumers.lag`. */
  readonly check: string
  readonly level: 'ok' | 'warning' | 'error'
  readonly message: string
  /** What to do about it: a call, a statement or a command. Undefined if nothing is to be done. */
  readonly mend: string | undefined
}

export interface DoctorParts {
  readonly log: Log
  readonly schema: Schema
}

/** From where on something is worth telling. */
export type Limits = Required<{ readonly [K in 'oldTransactionMs' | 'lagMs']: number }>

/** A check finds what is wrong; if it finds nothing, it is said to be well with `ok`. */
export interface Check {
  readonly name: string
  /** What is true if nothing is wrong. */
  readonly ok: string
  find(): Promise<readonly Trouble[]>
}

export type Trouble = Omit<Finding, 'check' | 'level'> & { readonly level: 'warning' | 'error' }

export async function examine(parts: DoctorParts, options: DoctorOptions = {}): Promise<Diagnosis> {
  const { oldTransactionMs = 300_000, lagMs = 60_000, signal } = options
  checkWhole('oldTransactionMs', oldTransactionMs, 0)
  checkWhole('lagMs', lagMs, 0)
  parts.log.database.refuseInsideTransaction('doctor')
  const findings: Finding[] = []
  for (const { name, ok, find } of checksOf(parts, { oldTransactionMs, lagMs })) {
    throwIfAborted(signal)
    const troubles = await find().catch((error: unknown) => [unable(error)])
    if (troubles.length === 0) findings.push({ check: name, level: 'ok', message: ok, mend: undefined })
    else findings.push(...troubles.map(trouble => ({ check: name, ...trouble })))
  }
  return { isHealthy: !findings.some(finding => finding.level === 'error'), findings }
}

function checksOf(parts: DoctorParts, limits: Limits): Check[] {
  const { log } = parts
  return [
    ...checkSchema(parts),
    ...checkServer(log),
    ...checkTransactions(log, limits),
    ...checkTables(log),
    ...checkConsumers(log, limits),
    ...checkWorkflows(log),
  ]
}

/** Nothing can be said: that is a warning of its own, and no reason to leave out the rest. */
function unable(error: unknown): Trouble {
  // The store itself is not there: then there is nothing to examine.
  if (isRillflowError(error, 'store_closed')) throw error
  const reason = error instanceof Error ? error.message : String(error)
  return {
    level: 'warning',
    message: `This could not be looked at: ${reason}`,
    mend: 'Mend what the message says; on a server, grant pg_read_all_stats to the role of this program.',
  }
}
