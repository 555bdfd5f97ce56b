/** `rillflow doctor` */
import type { Diagnosis, Finding } from '../upkeep/doctor/doctor.ts'
import { type Command, defineCommand } from './command.ts'
import type { Colours } from './output/colour.ts'
import type { Style } from './output/output.ts'
import { asCommand } from './schema/report-check.ts'
import { allTenantsOption, asJson, forEachStore } from './tenants/each.ts'

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
  const lines = findings.flatMap(({ check, level, message, fix }) => {
    const line = `${painted(level, colour)}  ${check.padEnd(width)}  ${message}`
    return fix === undefined ? [line] : [line, colour.dim(`${' '.repeat(width + 11)}fix: ${asCommand(fix)}`)]
  })
  const [errors, warnings] = (['error', 'warning'] as const).map(each => findings.filter(({ level }) => level === each))
  return [...lines, '', `${errors!.length} wrong, ${warnings!.length} to be seen to, of ${findings.length}.`].join('\n')
}

function painted(level: Finding['level'], { red, yellow, green }: Colours): string {
  const paint = { ok: green, warning: yellow, error: red }[level]
  return paint(level.padEnd(7))
}
