/**
 * `rillflow tenants`: the tenants of a store. A command for one tenant is any other command with `--tenant`; checks visit all
 * tenants with `--all-tenants`.
 *
 *     ensure · drop                  create a tenant or update its schema, and delete it
 *     list · status · sync           all tenants at once
 *     export ──► folder ──► import   also import --from-schema: a part of another schema becomes a tenant
 *     move                           to another server, while the tenant is used
 *
 * What can fail: a store without tenants (`WrongUsage`); a tenant or server that is not known; for `move`, a configuration
 * without a directory (`TenancyRequired`).
 */

import { throwIfAborted } from '../../core/abort.ts'
import type { TenantStatus } from '../../tenants/status.ts'
import type { Tenants } from '../../tenants/tenants.ts'
import type { Selection } from '../../transfer/export/selection.ts'
import { type Argument, type Commands, defineCommand, defineVerbs, type Invocation } from '../command.ts'
import { importDefault } from '../config.ts'
import { openTenants, tenantNames } from '../every-tenant.ts'
import { pageOptions, printPage } from '../list-command.ts'
import { bytes, count, digits, duration } from '../output/amount.ts'
import { paintState } from '../output/state.ts'
import { type Column, table } from '../output/table.ts'
import { ConfigFailed, WrongUsage } from '../report-error.ts'
import { exportOptions, exportText, importText, showRows } from './transfer.ts'

const tenant = { name: 'tenant', summary: 'The name of the tenant', completes: 'tenant' } as const satisfies Argument

const oneTenant = {
  name: 'tenant',
  summary: 'Only this tenant',
  completes: 'tenant',
  optional: true,
} as const satisfies Argument

const serverOption = {
  kind: 'text',
  value: 'SERVER',
  summary: 'The server, as the directory names it. Default: the one with the fewest tenants',
} as const

const ensure = defineCommand({
  description:
    'The command may be repeated, also by many processes at the same time. If there is no directory, it is created with the servers of the configuration.',
  arguments: [{ name: 'tenant', summary: 'The name of the tenant: lower-case letters, digits, _ and -' }],
  options: { server: serverOption },
  examples: ['rillflow tenants ensure acme', 'rillflow tenants ensure acme --server eu-1'],
  async run({ out, open, arguments: { tenant }, options: { server }, signal }) {
    const { tenants } = await openTenants({ open }, { migrate: true, create: true })
    const placement = await tenants.ensure(tenant, { server, signal })
    out.print(placement, style => {
      const place = `schema ${placement.schema} of server ${placement.server}`
      return `Tenant ${style.colour.cyan(tenant)} exists and is up to date: ${place}.`
    })
  },
})

const list = defineCommand({
  options: pageOptions,
  examples: ['rillflow tenants list', 'rillflow tenants list --json | jq -r .items[].tenant'],
  async run({ out, open, options }) {
    const { tenants } = await openTenants({ open })
    const page = await tenants.list(options)
    const columns: Column<(typeof page.items)[number]>[] = [
      { title: 'TENANT', of: ({ tenant }) => tenant, paint: (_, colour) => colour.cyan },
      { title: 'SERVER', of: ({ server }) => server },
      { title: 'SCHEMA', of: ({ schema }) => schema, paint: (_, colour) => colour.dim },
      {
        title: 'STATE',
        of: ({ state }) => state,
        paint: ({ state }, colour) => paintState(state === 'moving' ? 'waiting' : 'running', colour),
      },
    ]
    printPage(out, page, () => columns, 'There are no tenants.')
  },
})

const status = defineCommand({
  description:
    'EVENTS is an estimate by the server. LAG is that of the slowest consumer. PENDING counts the steps of the next sync. DRIFT counts differences from the expected schema; --json and `health schema --tenant NAME` show them.',
  arguments: [oneTenant],
  examples: ['rillflow tenants status', 'rillflow tenants status acme --json'],
  async run({ out, open, arguments: { tenant: only }, signal }) {
    const { tenants } = await openTenants({ open }, { migrate: 'manual' })
    const names = only === undefined ? await tenantNames(tenants) : [only]
    const bar = out.progress('Reading')
    const rows: TenantStatus[] = []
    try {
      for (const name of names) {
        throwIfAborted(signal)
        rows.push(await tenants.status(name))
        bar.update(rows.length, names.length, 'tenant')
      }
    } finally {
      bar.end()
    }
    const columns: Column<TenantStatus>[] = [
      { title: 'TENANT', of: ({ tenant }) => tenant, paint: (_, colour) => colour.cyan },
      { title: 'SERVER', of: ({ server }) => server },
      { title: 'VERSION', of: ({ version }) => version, right: true },
      { title: 'PENDING', of: ({ pending }) => pending.length, right: true },
      {
        title: 'DRIFT',
        of: ({ drift }) => drift.length,
        right: true,
        paint: ({ drift }, colour) => (drift.length > 0 ? colour.red : colour.dim),
      },
      { title: 'SIZE', of: status => bytes(status.bytes), right: true },
      { title: 'EVENTS', of: ({ events }) => digits(events), right: true },
      { title: 'HEAD', of: ({ head }) => digits(head), right: true },
      { title: 'LAG', of: ({ lag }) => digits(lag), right: true },
    ]
    out.print(only === undefined ? rows : rows[0], style => table(style, rows, columns, 'There are no tenants.'))
  },
})

const sync = defineCommand({
  description:
    'A tenant that fails does not stop the others; the exit code is then 1, and the next sync retries it. `schema plan --tenant NAME` shows the steps for one tenant.',
  arguments: [oneTenant],
  options: {
    concurrency: {
      kind: 'whole',
      value: 'COUNT',
      default: 4,
      summary: 'The number of tenants that are synced at the same time',
    },
  },
  examples: ['rillflow tenants sync', 'rillflow tenants sync --concurrency 16 --json'],
  async run({ out, open, arguments: { tenant: only }, options: { concurrency }, signal }) {
    const { tenants } = await openTenants({ open }, { migrate: 'manual' })
    const bar = out.progress('Syncing')
    const results = await tenants
      .sync({
        ...{ concurrency, signal, tenants: only === undefined ? undefined : [only] },
        onProgress: ({ done, total }) => bar.update(done, total, 'tenant'),
      })
      .finally(() => bar.end())
    const rows = results.map(({ tenant, steps, error }) => ({
      ...{ tenant, steps },
      ...(error === undefined ? {} : { error: error instanceof Error ? error.message : String(error) }),
    }))
    const hasFailed = rows.some(({ error }) => error !== undefined)
    const columns: Column<(typeof rows)[number]>[] = [
      { title: 'TENANT', of: ({ tenant }) => tenant, paint: (_, colour) => colour.cyan },
      { title: 'RESULT', of: ({ steps }) => (steps.length === 0 ? 'up to date' : count(steps.length, 'step')) },
      ...(hasFailed ? [{ title: 'ERROR', of: ({ error }: (typeof rows)[number]) => error, below: true }] : []),
    ]
    out.print(rows, style => table(style, rows, columns, 'There are no tenants.'))
    return hasFailed ? 1 : 0
  },
})

const exportTenant = defineCommand({
  description:
    'Writes the tenant as it is at one moment, as text files with checksums, for `tenants import` on any engine. On a server, reads and writes continue meanwhile.',
  arguments: [tenant],
  options: exportOptions,
  examples: ['rillflow tenants export acme --output ./acme-2026'],
  async run({ out, open, arguments: { tenant }, options: { output, includeSnapshots }, signal }) {
    const { tenants } = await openTenants({ open })
    const bar = out.progress(`Exporting ${tenant}`)
    const manifest = await tenants
      .export(tenant, { output, includeSnapshots, signal, onProgress: showRows(bar) })
      .finally(() => bar.end())
    out.print({ tenant, output, ...manifest }, style => exportText(style, `tenant ${tenant}`, output, manifest))
  },
})

const importTenant = defineCommand({
  description:
    'From an export: INPUT is its folder, and the tenant must not exist or must be empty; its tables are checked, its rows are trusted. From a schema: INPUT is the name of the new tenant, and the module of --select selects streams and documents. Its default export is { stream, collections, document }, or a function that returns this for the name of the tenant. The source is only read. An import that was interrupted is resumed by the next call.',
  arguments: [{ name: 'input', summary: 'The folder of an export; with --from-schema the name of the new tenant' }],
  options: {
    as: { kind: 'text', value: 'NAME', summary: 'From an export: another name for the new tenant' },
    fromSchema: { kind: 'text', value: 'SCHEMA', summary: 'Take a part of this schema of the same database' },
    select: {
      kind: 'text',
      value: 'MODULE',
      summary: 'With --from-schema: the module that selects streams and documents',
    },
    server: serverOption,
  },
  examples: [
    'rillflow tenants import ./acme-2026 --as acme-copy',
    'rillflow tenants import acme --from-schema public --select ./select-tenant.mjs',
  ],
  async run({ out, open, arguments: { input }, options: { as, fromSchema, select, server }, signal }) {
    if ((fromSchema === undefined) !== (select === undefined))
      throw new WrongUsage({
        reason: '--from-schema and --select must be used together',
        hint: 'rillflow tenants import --help',
      })
    const selection = select === undefined ? undefined : await loadSelection(select, input)
    const { tenants } = await openTenants({ open }, { migrate: true, create: true })
    if (selection === undefined) await importExport(tenants, { input, tenant: as, server }, { out, signal })
    else await importPart(tenants, { tenant: input, schema: fromSchema!, select: selection, server }, { out, signal })
  },
})

async function importExport(
  tenants: Tenants,
  { input, ...options }: { input: string; tenant: string | undefined; server: string | undefined },
  { out, signal }: Pick<Invocation, 'out' | 'signal'>,
): Promise<void> {
  const bar = out.progress('Importing')
  const { manifest, ...placement } = await tenants
    .import({ input, ...options, signal, onProgress: showRows(bar) })
    .finally(() => bar.end())
  out.print({ ...placement, manifest }, style => importText(style, `tenant ${placement.tenant}`, manifest))
}

async function importPart(
  tenants: Tenants,
  { tenant, ...options }: { tenant: string; schema: string; select: Selection; server: string | undefined },
  { out, signal }: Pick<Invocation, 'out' | 'signal'>,
): Promise<void> {
  const bar = out.progress(`Importing ${tenant}`)
  const imported = await tenants
    .importFrom(tenant, {
      ...{ ...options, signal },
      onProgress: ({ events, documents }) => bar.update(events + documents, undefined, 'row'),
    })
    .finally(() => bar.end())
  out.print(imported, style => {
    const { streams, events, documents, position } = imported.copied
    const content = [count(streams, 'stream'), count(events, 'event'), count(documents, 'document')].join(', ')
    return `${style.colour.green('Imported')} tenant ${tenant}: ${content}, from the log up to position ${position}.`
  })
}

async function loadSelection(path: string, tenant: string): Promise<Selection> {
  const exported = await importDefault(path)
  const selection: unknown = typeof exported === 'function' ? await exported(tenant) : exported
  if (typeof selection === 'object' && selection !== null) return selection as Selection
  const reason = 'its default export must be { stream, collections, document }, or a function that returns this'
  throw new ConfigFailed({ path, reason })
}

const drop = defineCommand({
  description: 'Deletes its events, documents, read models and workflows. For a copy, use `tenants export` first.',
  arguments: [tenant],
  examples: ['rillflow tenants drop acme --dry-run', 'rillflow tenants drop acme --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { tenant } }) {
    const { tenants, where } = await openTenants({ open }, { migrate: 'manual' })
    const { schema, head, bytes: size } = await tenants.status(tenant)
    const content = `a log up to position ${head} and ${bytes(size)}`
    if (!(await confirm(`drop tenant ${tenant} of ${where}, which holds ${content}, and everything in it`))) return
    await tenants.drop(tenant, { force: true })
    out.print({ tenant, schema, dropped: true }, () => `Dropped tenant ${tenant}.`)
  },
})

const move = defineCommand({
  description:
    'Writes to the tenant pause only for the last step. A move that was interrupted is resumed by the next call. To undo it instead, move the tenant to the server where it is.',
  arguments: [tenant, { name: 'server', summary: 'The server to move to, as the directory names it' }],
  options: {
    maxPauseMs: {
      kind: 'whole',
      value: 'MS',
      default: 10_000,
      summary: 'The maximum time that writes may pause; a move that needs longer is given up',
    },
    keepSource: { kind: 'flag', summary: 'Keep the copy on the old server, under another name' },
  },
  examples: ['rillflow tenants move acme eu-2'],
  async run({ out, open, arguments: { tenant, server }, options: { maxPauseMs, keepSource }, signal }) {
    const { tenants } = await openTenants({ open })
    const bar = out.progress(`Moving ${tenant}`)
    const options = { maxPauseMs, keepSource, signal, onProgress: showRows(bar) }
    const result = await tenants.move(tenant, { server }, options).finally(() => bar.end())
    out.print(result, style => {
      if (result.moved === undefined) return `Tenant ${tenant} is on server ${result.server}.`
      const { events, rows, pausedMs } = result.moved
      const copied = `${count(events, 'event')} and ${count(rows, 'other row')} copied`
      const moved = `${style.colour.green('Moved')} tenant ${tenant} to server ${result.server}`
      return `${moved}: ${copied}, writes paused for ${duration(pausedMs)}.`
    })
  },
})

export const tenants: Commands = defineVerbs({
  ensure: ['Create a tenant, or bring its schema up to date', ensure],
  list: ['Show the tenants and where they are', list],
  status: ['Show the version, drift, size and lag of each tenant', status],
  sync: ['Bring the schemas of all tenants up to date', sync],
  export: ['Write everything of a tenant into a folder', exportTenant],
  import: ['Create a tenant from an export, or from a part of a schema', importTenant],
  drop: ['Delete a tenant and everything it has', drop],
  move: ['Move a tenant to another server while it is in use', move],
})
