/**
 * `rillflow schema` and `rillflow health`: the database schema of the store.
 *
 *     plan       the statements that a sync would run
 *     sync       run them
 *     check      compare the schema with what this version needs; also `rillflow health schema`, for probes
 *     roles      the SQL for three roles; no store is opened
 *     down       drop the schema
 *
 * The others open the store without a migration, so that they see the schema as it is.
 *
 * What can fail: a check that finds problems exits with 3, or with 4 if the schema is newer than this version.
 */
import { isRillflowError } from '../../core/errors.ts'
import type { CheckResult } from '../../schema/check.ts'
import { roleStatements } from '../../schema/roles.ts'
import type { Store } from '../../store.ts'
import { type Commands, defineCommand, defineVerbs, type ExitCode, type Invocation } from '../command.ts'
import { allTenantsOption, forEachStore, resultsAsJson } from '../every-tenant.ts'
import { count } from '../output/amount.ts'
import type { Style } from '../output/output.ts'
import { type Column, table } from '../output/table.ts'
import { WrongUsage } from '../report-error.ts'

const plan = defineCommand({
  description: 'Changes nothing. Problems that a sync cannot fix are listed too.',
  options: { sql: { kind: 'flag', summary: 'Print the statements themselves' } },
  examples: ['rillflow schema plan', 'rillflow schema plan --sql > sync.sql'],
  async run({ out, open, options: { sql } }) {
    const { store } = await open({ migrate: 'manual' })
    const { name } = store.schema
    const { steps, problems } = await store.schema.plan()
    const columns: Column<(typeof steps)[number]>[] = [
      { title: 'STEP', of: step => step.object },
      { title: 'KIND', of: step => step.kind, paint: (_, colour) => colour.dim },
      { title: 'REASON', of: step => step.reason, cut: true },
    ]
    const { status } = await store.schema.state()
    out.print({ schema: name, steps, problems }, style => {
      if (sql) return steps.map(step => `${step.sql.trim()};`).join('\n\n')
      // Of a schema that is not there every step has the same reason, and there are about a hundred.
      const isNew = status === 'missing' && steps.length > 0
      const lines = [
        isNew ? summaryOfNew(name, steps) : table(style, steps, columns, upToDate(name)),
        ...problems.map(problem => problemLine(style, problem)),
      ]
      if (steps.length > 0) lines.push('', `${count(steps.length, 'step')}. To run them: rillflow schema sync`)
      if (isNew) lines.push('To read them: rillflow schema plan --sql')
      return lines.join('\n')
    })
  },
})

/** `Schema shop does not exist. A sync creates it, with 24 tables, 30 indexes and 40 functions.` */
function summaryOfNew(schema: string, steps: readonly { readonly kind: string; readonly sql: string }[]): string {
  const numbers = new Map<string, number>()
  for (const { sql } of steps) {
    const [, what] = /^\s*create (?:or replace )?(?:unique )?(table|index|function|sequence)\b/i.exec(sql) ?? []
    if (what !== undefined) numbers.set(what, (numbers.get(what) ?? 0) + 1)
  }
  const parts = [...numbers].map(([what, number]) => count(number, what, what === 'index' ? 'indexes' : `${what}s`))
  const content = [parts.slice(0, -1).join(', '), ...parts.slice(-1)].filter(part => part !== '').join(' and ')
  return `Schema ${schema} does not exist. A sync creates it, with ${content}.`
}

const sync = defineCommand({
  description:
    'Runs the steps that `schema plan` shows: all of them, or none if one fails. An embedded store is created if there is none. Several processes may sync at the same time.',
  examples: ['rillflow schema sync', 'rillflow schema sync --url postgres://localhost/shop --json'],
  async run({ out, open, signal }) {
    const { store } = await open({ migrate: 'manual', create: true })
    const { name } = store.schema
    const bar = out.progress('Syncing')
    const { steps, problems } = await store.schema
      .sync({ signal, onProgress: ({ done, total }) => bar.update(done, total, 'step') })
      .finally(() => bar.end())
    out.print({ schema: name, steps, problems }, style => {
      const synced = `${style.colour.green('Synced')} schema ${name}: ${count(steps.length, 'step')}.`
      const lines = problems.map(problem => problemLine(style, problem))
      return [steps.length === 0 ? upToDate(name) : synced, ...lines].join('\n')
    })
  },
})

function upToDate(schema: string): string {
  return `Nothing to do: schema ${schema} is up to date.`
}

function problemLine({ colour }: Style, { object, problem, fix }: Problem): string {
  return `${colour.yellow('!')} ${object} ${problem}: ${fix}`
}

const check = defineCommand({
  description:
    'Compares tables, indexes, functions and sequences with those that the migrations and the configuration create. Exits with 3 if something differs, with 4 if the schema is newer than this version.',
  examples: ['rillflow schema check', 'rillflow schema check --json'],
  options: { allTenants: allTenantsOption },
  run: reportCheck,
})

const healthOfSchema = defineCommand({
  description:
    'The same check as `schema check`. Exits with 0 if the schema is right, with 3 if something is missing or was changed, with 4 if the schema is newer than this version.',
  examples: ['rillflow health schema', 'rillflow health schema --all-tenants --json || alert'],
  options: { allTenants: allTenantsOption },
  run: reportCheck,
})

const down = defineCommand({
  description:
    'Deletes events, documents, read models and everything else in the schema. Only a backup can restore them.',
  examples: ['rillflow schema down --dry-run', 'rillflow schema down --schema staging --yes'],
  destructive: true,
  async run({ out, open, confirm }) {
    const { store, where, tenancy } = await open({ migrate: 'manual' })
    if (tenancy !== undefined)
      throw new WrongUsage({
        reason: 'The schema of a tenant is dropped together with the tenant',
        hint: 'rillflow tenants drop NAME',
      })
    const { name } = store.schema
    const { status } = await store.schema.state()
    const content = status === 'missing' ? 'no store' : `a log up to position ${await store.events.head()}`
    if (!(await confirm(`drop schema ${name} of ${where}, which holds ${content}, and everything in it`))) return
    const { tables } = await store.schema.drop()
    out.print({ schema: name, dropped: true, tables }, () => `Dropped schema ${name} with ${count(tables, 'table')}.`)
  },
})

const roles = defineCommand({
  description:
    'Changes nothing and needs no database. The owner syncs and rebuilds, the writer is for programs and operators, the reader only reads. Let an administrator of the server run the statements, then grant each role to the roles that programs log in with. Running them again changes nothing.',
  options: {
    owner: { kind: 'text', value: 'ROLE', summary: 'The name of the role of deployments, if it is not SCHEMA_owner' },
    writer: { kind: 'text', value: 'ROLE', summary: 'The name of the role of programs, if it is not SCHEMA_writer' },
    reader: { kind: 'text', value: 'ROLE', summary: 'The name of the role of readers, if it is not SCHEMA_reader' },
  },
  examples: ['rillflow schema roles > roles.sql', 'rillflow schema roles --schema shop --reader reports'],
  async run({ out, location, config, options }) {
    const given = (await config())?.config
    const tenant = location.tenant === undefined ? undefined : `${given?.tenantPrefix ?? 'tenant_'}${location.tenant}`
    const schema = tenant ?? location.schema ?? given?.schema ?? 'rillflow'
    const statements = roleStatements(schema, options)
    out.print({ schema, statements }, () => `${statements.join(';\n\n')};`)
  },
})

export const schema: Commands = defineVerbs({
  plan: ['Show the steps of the next sync', plan],
  sync: ['Bring the schema up to date', sync],
  check: ['Look for differences from the expected schema', check],
  roles: ['Print the SQL for three roles: owner, writer and reader', roles],
  down: ['Drop the schema and everything in it', down],
})

export const health: Commands = defineVerbs({
  schema: ['Check that the schema is the one this version needs', healthOfSchema],
})

interface Problem {
  readonly object: string
  readonly problem: string
  readonly fix: string
}

interface StoreCheck extends Pick<CheckResult, 'isHealthy' | 'newer'> {
  readonly schema: string
  readonly problems: readonly (Problem & { readonly kind: string })[]
}

/** Checks one store, or the stores of all tenants. */
async function reportCheck({
  out,
  open,
  signal,
  options: { allTenants },
}: Pick<Invocation, 'out' | 'open' | 'signal'> & {
  readonly options: { readonly allTenants: boolean }
}): Promise<ExitCode> {
  const options = { migrate: 'manual', allTenants, title: 'Checking' } as const
  const results = await forEachStore({ out, open, signal }, options, checkStore)
  out.print(resultsAsJson(results, allTenants), style =>
    results.length === 0
      ? style.colour.dim('There are no tenants.')
      : results.map(({ value, tenant }) => checkText(style, value, tenant)).join('\n'),
  )
  const problems = results.flatMap(({ value }) => value.problems)
  if (problems.length === 0) return 0
  return problems.some(({ kind }) => kind === 'schema_newer') ? 4 : 3
}

/** A tenant whose store cannot be opened is reported as a problem, so that the other tenants are still checked. */
async function checkStore(open: () => Promise<Store>, tenant: string | undefined): Promise<StoreCheck> {
  try {
    const { schema } = await open()
    return { schema: schema.name, ...(await schema.check()) }
  } catch (error) {
    if (tenant === undefined || !isRillflowError(error)) throw error
    const problem = { kind: error.code, object: `tenant ${tenant}`, problem: error.message, fix: '' }
    return { schema: '', isHealthy: false, newer: [], problems: [problem] }
  }
}

function checkText(
  style: Style,
  { schema, isHealthy, problems, newer }: StoreCheck,
  tenant: string | undefined,
): string {
  const columns: Column<Problem>[] = [
    { title: 'OBJECT', of: ({ object }) => object, paint: (_, colour) => colour.red },
    { title: 'PROBLEM', of: ({ problem }) => problem, cut: true },
    { title: 'FIX', of: ({ fix }) => asCommand(fix), below: true },
  ]
  const name = tenant === undefined ? `Schema ${schema}` : `Tenant ${tenant}, schema ${schema},`
  const heading =
    tenant === undefined ? [] : [`${style.colour.red('!!')}  Tenant ${tenant}: ${count(problems.length, 'problem')}`]
  const result = isHealthy
    ? `${style.colour.green('ok')}  ${name} is the one that this version of rillflow needs.`
    : [...heading, table(style, problems, columns, '')].join('\n')
  return newer.length === 0 ? result : `${result}\nAdded by a newer version, and harmless: ${newer.join(', ')}.`
}

/** The advice of the library, with commands instead of the calls of a program. */
export function asCommand(advice: string): string {
  if (advice.includes('store.schema.sync()')) return 'rillflow schema sync'
  return advice.replace(consumerCall, (call, start: string, verb: string, name: string, group: string | undefined) => {
    // Any other name would need quotes.
    if (![name, group ?? ''].every(each => /^[\w.@-]*$/.test(each))) return call
    const option = group === undefined || group === 'default' ? '' : ` --group ${group}`
    return `${start === 'C' ? 'Run' : 'run'}: rillflow consumers ${verb} ${name}${option}`
  })
}

/** `call store.consumers.resume("mailer", { group: "audit" })` */
const consumerCall = /\b([Cc])all store\.consumers\.(\w+)\("([^"]*)"(?:, \{ group: "([^"]*)" \})?\)/
