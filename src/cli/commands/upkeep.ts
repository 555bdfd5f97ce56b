/**
 * Commands that look after a store: `doctor` looks for problems and `check` for what a deployment would break, and both
 * change nothing; `upkeep` deletes expired data, as runners do by themselves a few times a day.
 */
import type { Diagnosis, Finding } from '../../upkeep/doctor/doctor.ts'
import type { UpkeepReport } from '../../upkeep/upkeep.ts'
import { type Command, defineCommand } from '../command.ts'
import { allTenantsOption, forEachStore, resultsAsJson, type TenantResult } from '../every-tenant.ts'
import { count, digits } from '../output/amount.ts'
import type { Style } from '../output/output.ts'
import { fields, wrapped } from '../output/table.ts'
import { asCommand } from './schema.ts'

export const doctor: Command = defineCommand({
  description:
    'Checks the schema, the server, the tables, the log, consumers and workflows, and changes nothing. Exits with 3 if it finds an error; a warning does not change the exit code.',
  options: { allTenants: allTenantsOption },
  examples: ['rillflow doctor', 'rillflow doctor --json || alert'],
  async run({ out, open, signal, options: { allTenants } }) {
    const options = { migrate: 'manual', allTenants, title: 'Checking' } as const
    const results = await forEachStore({ out, open, signal }, options, async openOne =>
      (await openOne()).doctor({ signal }),
    )
    out.print(resultsAsJson(results, allTenants), style => byTenant(style, results, diagnosisText))
    return results.every(({ value }) => value.isHealthy) ? 0 : 3
  },
})

export const check: Command = defineCommand({
  description:
    'Compares the definitions of the configuration with a store, before they are deployed, and changes nothing: open executions that would be parked, stored events that the new upcasters and schemas refuse, states that the new code would fold otherwise, handlers and schedules that no process would run, the steps of the next sync. Exits with 3 if something would break; a warning does not change the exit code. Code outside of the steps of a handler is run.',
  options: {
    against: { kind: 'text', value: 'URL', summary: 'The server with the store. Default: as for all commands' },
    allTenants: allTenantsOption,
  },
  examples: ['rillflow check --against postgres://localhost/shop', 'rillflow check --json || exit 1'],
  async run({ out, open, signal, options: { against, allTenants } }) {
    const options = { migrate: 'manual', allTenants, title: 'Checking', url: against } as const
    const results = await forEachStore({ out, open, signal }, options, async openOne =>
      (await openOne()).checkDeployment({ signal }),
    )
    out.print(resultsAsJson(results, allTenants), style => byTenant(style, results, diagnosisText))
    return results.every(({ value }) => value.isSafe) ? 0 : 3
  },
})

export const upkeep: Command = defineCommand({
  description:
    'Runners do this by themselves a few times a day. `retention` in the configuration says how long data is kept. Events that a consumer has not read yet are never deleted.',
  options: {
    dryRun: { kind: 'flag', summary: 'Only print what would be deleted' },
    allTenants: allTenantsOption,
  },
  examples: ['rillflow upkeep --dry-run', 'rillflow upkeep --json'],
  async run({ out, open, signal, options: { dryRun, allTenants } }) {
    const options = { allTenants, title: 'Deleting' }
    const results = await forEachStore({ out, open, signal }, options, async openOne =>
      (await openOne()).upkeep({ dryRun, signal }),
    )
    out.print(resultsAsJson(results, allTenants), style => byTenant(style, results, upkeepText))
  },
})

/** The text of each result, under the name of its tenant. */
function byTenant<T>(
  style: Style,
  results: readonly TenantResult<T>[],
  textOf: (style: Style, value: T) => string,
): string {
  return results
    .map(({ tenant, value }) => {
      const text = textOf(style, value)
      return tenant === undefined ? text : `${style.colour.bold(tenant)}\n${text}\n`
    })
    .join('\n')
}

function diagnosisText({ colour, width: columns }: Style, { findings }: Pick<Diagnosis, 'findings'>): string {
  const width = Math.max(...findings.map(({ check }) => check.length))
  const paint = { ok: colour.green, warning: colour.yellow, error: colour.red }
  const lines = findings.flatMap(({ check, level, message, fix }) => {
    const text = wrapped(message, columns, width + 11).trimStart()
    const line = `${paint[level](level.padEnd(7))}  ${check.padEnd(width)}  ${text}`
    return fix === undefined ? [line] : [line, colour.dim(wrapped(`fix: ${asCommand(fix)}`, columns, width + 11))]
  })
  const countOf = (wanted: Finding['level']): number => findings.filter(({ level }) => level === wanted).length
  const summary = `${count(countOf('error'), 'error')}, ${count(countOf('warning'), 'warning')}`
  return [...lines, '', `${summary}, ${count(findings.length, 'check')}.`].join('\n')
}

function upkeepText(style: Style, report: UpkeepReport): string {
  const { isDryRun, archivedStreams, archivedEvents, slowest } = report
  const deleted = fields(style, {
    'idempotency keys': digits(report.idempotencyKeys),
    'dead letters': digits(report.deadLetters),
    attempts: digits(report.attempts),
    audit: digits(report.audit),
    history: digits(report.history),
    'archived events': `${digits(archivedEvents)} of ${count(archivedStreams, 'stream')}`,
    'slowest consumer': slowest === undefined ? undefined : `${slowest.name} at position ${slowest.position}`,
  })
  return `${isDryRun ? 'Would delete:' : 'Deleted:'}\n${deleted}`
}
