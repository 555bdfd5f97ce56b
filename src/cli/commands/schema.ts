/** Commands about the schema. They open the store without touching the schema first, so that they can tell how it is. */
import { isRillflowError } from '../../core/errors.ts'
import type { CheckResult } from '../../schema/check.ts'
import type { Store } from '../../store.ts'
import { type Commands, defineCommand, defineVerbs, type ExitCode, type Invocation } from '../command.ts'
import { allTenantsOption, asJson, forEachStore } from '../every-tenant.ts'
import { count } from '../output/amount.ts'
import type { Style } from '../output/output.ts'
import { table } from '../output/table.ts'
import { WrongUsage } from '../report-error.ts'

// A check of the schema, or of those of all tenants, told; by its exit code too.

export const checkOptions: { readonly allTenants: typeof allTenantsOption } = { allTenants: allTenantsOption }

type Checking = Pick<Invocation, 'out' | 'open' | 'signal'> & { readonly options: { readonly allTenants: boolean } }

interface Checked extends Pick<CheckResult, 'ok' | 'newer'> {
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
  const checked = await forEachStore({ out, open, signal }, options, checkStore)
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
async function checkStore(open: () => Promise<Store>, tenant: string | undefined): Promise<Checked> {
  try {
    const { schema } = await open()
    return { schema: schema.name, ...(await schema.check()) }
  } catch (error) {
    if (tenant === undefined || !isRillflowError(error)) throw error
    const problem = { kind: error.code, object: `tenant ${tenant}`, problem: error.message, fix: '' }
    return { schema: '', ok: false, newer: [], problems: [problem] }
  }
}

function checkText(style: Style, { schema, ok, problems, newer }: Checked): string {
  const shown = ok
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

const plan = defineCommand({
  description: 'Nothing is changed. What no sync will mend is listed too.',
  options: { sql: { kind: 'flag', summary: 'The statements themselves' } },
  examples: ['rillflow schema plan', 'rillflow schema plan --sql > sync.sql'],
  async run({ out, open, options }) {
    const { store } = await open({ migrate: 'manual' })
    const { steps, problems } = await store.schema.plan()
    const value = { schema: store.schema.name, steps, problems }
    if (options.sql) {
      out.print(value, () => steps.map(step => `${step.sql.trim()};`).join('\n\n'))
      return
    }
    out.print(value, style => {
      const shown = [
        table(
          style,
          steps,
          [
            { title: 'STEP', of: step => step.object },
            { title: 'KIND', of: step => step.kind, paint: (_, colour) => colour.dim },
            { title: 'REASON', of: step => step.reason, cut: true },
          ],
          `Nothing to do: schema ${store.schema.name} is up to date.`,
        ),
        ...problems.map(each => `${style.colour.yellow('!')} ${each.object} ${each.problem}: ${each.fix}`),
      ]
      if (steps.length > 0) shown.push('', `${count(steps.length, 'step')}. Run them with: rillflow schema sync`)
      return shown.join('\n')
    })
  },
})

const sync = defineCommand({
  description:
    'Runs what `schema plan` shows, all or nothing. An embedded store that is not there is made. Many processes may sync at once.',
  examples: ['rillflow schema sync', 'rillflow schema sync --url postgres://localhost/shop --json'],
  async run({ out, open, signal }) {
    const { store } = await open({ migrate: 'manual', creates: true })
    const bar = out.progress('Syncing')
    const { steps, problems } = await store.schema
      .sync({ signal, onProgress: ({ done, total }) => bar.update(done, total, 'step') })
      .finally(() => bar.end())
    const { name } = store.schema
    out.print({ schema: name, steps, problems }, style => {
      const told =
        steps.length === 0
          ? `Nothing to do: schema ${name} is up to date.`
          : `${style.colour.green('Synced')} schema ${name}: ${count(steps.length, 'step')}.`
      return [
        told,
        ...problems.map(each => `${style.colour.yellow('!')} ${each.object} ${each.problem}: ${each.fix}`),
      ].join('\n')
    })
  },
})

const check = defineCommand({
  description:
    'Compares tables, indexes, functions and sequences with what the migrations and the configuration make. Exits with 3 if something differs, with 4 if the schema is newer than this version.',
  examples: ['rillflow schema check', 'rillflow schema check --json'],
  options: checkOptions,
  run: reportCheck,
})

const healthOfSchema = defineCommand({
  description:
    'Exits with 0 if it is, with 3 if something is missing or was changed, with 4 if it is newer than this version.',
  examples: ['rillflow health schema', 'rillflow health schema --all-tenants --json || alert'],
  options: checkOptions,
  run: reportCheck,
})

const down = defineCommand({
  description:
    'Events, documents, read models and whatever else is in the schema are gone for good. There is no way back but a backup.',
  examples: ['rillflow schema down --dry-run', 'rillflow schema down --schema staging --yes'],
  destructive: true,
  async run({ out, open, confirm }) {
    const { store, where, tenancy } = await open({ migrate: 'manual' })
    if (tenancy !== undefined)
      throw new WrongUsage({
        reason: 'The schemas of tenants are dropped with them',
        hint: 'rillflow tenants drop NAME',
      })
    const { name } = store.schema
    const { status } = await store.schema.state()
    const held = status === 'missing' ? 'no store' : `a log up to position ${await store.events.head()}`
    if (!(await confirm(`drop schema ${name} of ${where}, which holds ${held}, and everything in it`))) return
    const { tables } = await store.schema.drop()
    out.print({ schema: name, dropped: true, tables }, () => `Dropped schema ${name} with ${count(tables, 'table')}.`)
  },
})

export const schema: Commands = defineVerbs({
  plan: ['What a sync would do', plan],
  sync: ['Bring the schema up to date', sync],
  check: ['Look for what is not as it should be', check],
  down: ['Drop the schema and everything in it', down],
})

// Commands about health, for probes: quick, and told by the exit code.

export const health: Commands = defineVerbs({
  schema: ['Whether the schema is what this version needs', healthOfSchema],
})
