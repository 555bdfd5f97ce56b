/** `rillflow upkeep` */
import type { UpkeepReport } from '../upkeep/upkeep.ts'
import { type Command, defineCommand } from './command.ts'
import { count, digits } from './output/amount.ts'
import type { Style } from './output/output.ts'
import { fields } from './output/table.ts'
import { allTenantsOption, asJson, forEachStore } from './tenants/each.ts'

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
