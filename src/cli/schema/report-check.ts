/** A check of the schema, or of those of all tenants, told; by its exit code too. */
import { isRillflowError } from '../../core/errors.ts'
import type { CheckResult } from '../../schema/check.ts'
import type { Store } from '../../store.ts'
import type { ExitCode, Invocation } from '../command.ts'
import type { Style } from '../output/output.ts'
import { table } from '../output/table.ts'
import { allTenantsOption, asJson, forEachStore } from '../tenants/each.ts'

export const checkOptions: { readonly allTenants: typeof allTenantsOption } = { allTenants: allTenantsOption }

type Checking = Pick<Invocation, 'out' | 'open' | 'signal'> & { readonly options: { readonly allTenants: boolean } }

interface Checked extends Pick<CheckResult, 'isHealthy' | 'newer'> {
  readonly schema: string
  readonly problems: readonly Found[]
}

interface Found {
  readonly kind: string
  readonly object: string
  readonly problem: string
  readonly fix: string
}

export async function reportCheck({ out, open, signal, options: { allTenants } }: Checking): Promise<ExitCode> {
  const options = { migrate: 'manual', allTenants, what: 'Checking' } as const
  const checked = await forEachStore({ out, open, signal }, options, check)
  out.print(asJson(checked, allTenants), style =>
    checked.length === 0
      ? style.colour.dim('No tenants.')
      : checked.map(({ value }) => checkText(style, value)).join('\n'),
  )
  const problems = checked.flatMap(({ value }) => value.problems)
  if (problems.length === 0) return 0
  return problems.some(each => each.kind === 'schema_newer') ? 4 : 3
}

/** A tenant whose schema cannot be used at all is a problem like the others, and must not hide theirs. */
async function check(open: () => Promise<Store>, tenant: string | undefined): Promise<Checked> {
  try {
    const { schema } = await open()
    return { schema: schema.name, ...(await schema.check()) }
  } catch (error) {
    if (tenant === undefined || !isRillflowError(error)) throw error
    const problem = { kind: error.code, object: `tenant ${tenant}`, problem: error.message, fix: '' }
    return { schema: '', isHealthy: false, newer: [], problems: [problem] }
  }
}

function checkText(style: Style, { schema, isHealthy, problems, newer }: Checked): string {
  const shown = isHealthy
    ? `${style.colour.green('ok')}  Schema ${schema} is what this version of rillflow needs.`
    : table(
        style,
        problems,
        [
          { title: 'OBJECT', of: each => each.object, paint: (_, colour) => colour.red },
          { title: 'PROBLEM', of: each => each.problem, cut: true },
          { title: 'FIX', of: each => asCommand(each.fix), cut: true },
        ],
        '',
      )
  return newer.length === 0 ? shown : `${shown}\nOf a newer version, and harmless: ${newer.join(', ')}.`
}

/** The advice of the library, as a command where there is one. */
export function asCommand(advice: string): string {
  return advice.includes('store.schema.sync()') ? 'rillflow schema sync' : advice
}
