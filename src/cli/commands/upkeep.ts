import type { Diagnosis, Finding } from '../../upkeep/doctor/doctor.ts'
import type { UpkeepReport } from '../../upkeep/upkeep.ts'
import { type Command, defineCommand } from '../command.ts'
import { allTenantsOption, asJson, forEachStore } from '../every-tenant.ts'
import { count, digits } from '../output/amount.ts'
import type { Colours, Style } from '../output/output.ts'
import { fields } from '../output/table.ts'
import { asCommand } from './schema.ts'

export const doctorCommand: Command = defineCommand({
  description:
    'Looks at the schema, the server, the tables, the log, consumers and workflows, and changes nothing. Exits with 3 if it finds an error; warnings are for when there is time.',
  options: { allTenants: allTenantsOption },
  examples: ['rillflow doctor', 'rillflow doctor --json || alert'],
  async run({ out, open, signal, options: { allTenants } }) {
    const found = await forEachStore(
      { out, open, signal },
      { migrate: 'manual', allTenants, what: 'Examining' },
      async store => (await store()).doctor({ signal }),
    )
    out.print(asJson(found, allTenants), style =>
      found
        .map(({ tenant, value }) => {
          const told = diagnosisText(style, value)
          return tenant === undefined ? told : `${style.colour.bold(tenant)}\n${told}\n`
        })
        .join('\n'),
    )
    return found.every(({ value }) => value.isHealthy) ? 0 : 3
  },
})

function diagnosisText(style: Style, { findings }: Diagnosis): string {
  const { colour } = style
  const width = Math.max(...findings.map(({ check }) => check.length))
  const lines = findings.flatMap(({ check, level, message, mend }) => {
    const line = `${painted(level, colour)}  ${check.padEnd(width)}  ${message}`
    return mend === undefined ? [line] : [line, colour.dim(`${' '.repeat(width + 11)}mend: ${asCommand(mend)}`)]
  })
  const [errors, warnings] = (['error', 'warning'] as const).map(each => findings.filter(({ level }) => level === each))
  return [...lines, '', `${errors!.length} wrong, ${warnings!.length} to be seen to, of ${findings.length}.`].join('\n')
}

function painted(level: Finding['level'], { red, yellow, green }: Colours): string {
  const paint = { ok: green, warning: yellow, error: red }[level]
  return paint(level.padEnd(7))
}

export const upkeepCommand: Command = defineCommand({
  description:
    'Daemons and workers do it by themselves a few times a day. How long what is kept is said by `retention` in the configuration; nothing goes that a consumer has still to read.',
  options: {
    dryRun: { kind: 'flag', summary: 'Change nothing, and tell what would go' },
    allTenants: allTenantsOption,
  },
  examples: ['rillflow upkeep --dry-run', 'rillflow upkeep --json'],
  async run({ out, open, signal, options: { dryRun, allTenants } }) {
    const done = await forEachStore({ out, open, signal }, { allTenants, what: 'Keeping up' }, async store =>
      (await store()).upkeep({ dryRun, signal }),
    )
    out.print(asJson(done, allTenants), style =>
      done
        .map(({ tenant, value }) => {
          const told = reportText(style, value)
          return tenant === undefined ? told : `${style.colour.bold(tenant)}\n${told}\n`
        })
        .join('\n'),
    )
  },
})

function reportText(style: Style, report: UpkeepReport): string {
  const { isDryRun, archivedStreams, archivedEvents, slowest } = report
  const told = fields(style, {
    'idempotency keys': digits(report.idempotencyKeys),
    'dead letters': digits(report.deadLetters),
    attempts: digits(report.attempts),
    history: digits(report.history),
    'archived events': `${digits(archivedEvents)} of ${count(archivedStreams, 'stream')}`,
    'slowest reader': slowest === undefined ? undefined : `${slowest.name} at position ${slowest.position}`,
  })
  return `${isDryRun ? 'Would delete:' : 'Deleted:'}\n${told}`
}
