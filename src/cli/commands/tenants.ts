/**
 * Commands about tenants as such. Whatever else is done for one tenant is done by the other commands with `--tenant`, and
 * the checks look at all of them with `--all-tenants`.
 */
import { throwIfAborted } from '../../core/lifecycle.ts'
import type { Selection } from '../../tenants/archive/from-schema.ts'
import type { TenantStatus } from '../../tenants/status.ts'
import type { Tenants } from '../../tenants/tenants.ts'
import { type Commands, defineCommand, defineVerbs, type Invocation } from '../command.ts'
import { importDefault } from '../config.ts'
import { openTenants, serverOption } from '../every-tenant.ts'
import { bytes, count, digits, duration } from '../output/amount.ts'
import { paintState } from '../output/state.ts'
import { table } from '../output/table.ts'
import { ConfigFailed, WrongUsage } from '../report-error.ts'
import { archiveOptions, archiveText, importedText, rowsOf } from './transfer.ts'

const ensure = defineCommand({
  description:
    'May be called again, and by many at once. A directory that is not there is made, with the servers of the configuration.',
  arguments: [{ name: 'tenant', summary: 'Its name: lower-case letters, digits, _ and -' }],
  options: { server: serverOption },
  examples: ['rillflow tenants ensure acme', 'rillflow tenants ensure acme --server eu-1'],
  async run({ out, open, arguments: { tenant }, options: { server }, signal }) {
    const { tenants } = await openTenants({ open }, { migrate: true, creates: true })
    const placement = await tenants.ensure(tenant, { server, signal })
    out.print(placement, style => {
      const place = `schema ${placement.schema} of server ${placement.server}`
      return `Tenant ${style.colour.cyan(tenant)} is there, up to date: ${place}.`
    })
  },
})

const list = defineCommand({
  examples: ['rillflow tenants list', 'rillflow tenants list --json | jq -r .[].tenant'],
  async run({ out, open }) {
    const { tenants } = await openTenants({ open })
    const placements = await tenants.list()
    out.print(placements, style =>
      table(
        style,
        placements,
        [
          { title: 'TENANT', of: each => each.tenant, paint: (_, colour) => colour.cyan },
          { title: 'SERVER', of: each => each.server },
          { title: 'SCHEMA', of: each => each.schema, paint: (_, colour) => colour.dim },
          {
            title: 'STATE',
            of: each => each.state,
            paint: (each, colour) => paintState(each.state === 'moving' ? 'waiting' : 'running', colour),
          },
        ],
        'No tenants.',
      ),
    )
  },
})

const status = defineCommand({
  description:
    'EVENTS is what the server estimates. LAG is that of the consumer furthest behind. What is pending a sync would make; drift is told in full with --json and by `health schema --tenant NAME`.',
  arguments: [{ name: 'tenant', summary: 'Only this one', names: 'tenant', optional: true }],
  examples: ['rillflow tenants status', 'rillflow tenants status acme --json'],
  async run({ out, open, arguments: { tenant }, signal }) {
    const { tenants } = await openTenants({ open }, { migrate: 'manual' })
    const names = tenant === undefined ? (await tenants.list()).map(each => each.tenant) : [tenant]
    const bar = out.progress('Looking')
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
    out.print(tenant === undefined ? rows : rows[0], style =>
      table(
        style,
        rows,
        [
          { title: 'TENANT', of: each => each.tenant, paint: (_, colour) => colour.cyan },
          { title: 'SERVER', of: each => each.server },
          { title: 'VERSION', of: each => each.version, right: true },
          { title: 'PENDING', of: each => each.pending.length, right: true },
          {
            title: 'DRIFT',
            of: each => each.drift.length,
            right: true,
            paint: (each, colour) => (each.drift.length > 0 ? colour.red : colour.dim),
          },
          { title: 'SIZE', of: each => bytes(each.bytes), right: true },
          { title: 'EVENTS', of: each => digits(each.events), right: true },
          { title: 'HEAD', of: each => digits(each.head), right: true },
          { title: 'LAG', of: each => digits(each.lag), right: true },
        ],
        'No tenants.',
      ),
    )
  },
})

const sync = defineCommand({
  description:
    'One that fails does not stop the others, makes the exit code 1, and is gone on with by the next call. `schema plan --tenant NAME` shows what would be done to one.',
  arguments: [{ name: 'tenant', summary: 'Only this one', names: 'tenant', optional: true }],
  options: { concurrency: { kind: 'whole', value: 'COUNT', default: 4, summary: 'How many at once' } },
  examples: ['rillflow tenants sync', 'rillflow tenants sync --concurrency 16 --json'],
  async run({ out, open, arguments: { tenant }, options: { concurrency }, signal }) {
    const { tenants } = await openTenants({ open }, { migrate: 'manual' })
    const bar = out.progress('Syncing')
    const synced = await tenants
      .sync({
        ...{ concurrency, signal, tenants: tenant === undefined ? undefined : [tenant] },
        onProgress: ({ done, total }) => bar.update(done, total, 'tenant'),
      })
      .finally(() => bar.end())
    const rows = synced.map(({ tenant: name, steps, error }) => ({
      ...{ tenant: name, steps },
      ...(error === undefined ? {} : { error: error instanceof Error ? error.message : String(error) }),
    }))
    out.print(rows, style =>
      table(
        style,
        rows,
        [
          { title: 'TENANT', of: each => each.tenant, paint: (_, colour) => colour.cyan },
          {
            title: 'RESULT',
            of: each => (each.steps.length === 0 ? 'up to date' : count(each.steps.length, 'step')),
          },
          ...(rows.some(each => each.error !== undefined)
            ? [{ title: 'ERROR', of: (each: (typeof rows)[number]) => each.error, cut: true }]
            : []),
        ],
        'No tenants.',
      ),
    )
    return rows.some(each => each.error !== undefined) ? 1 : 0
  },
})

const archive = defineCommand({
  description:
    'One moment of the tenant, as text files with checksums, for `tenants import` on any engine. On a server others go on reading and writing meanwhile.',
  arguments: [{ name: 'tenant', summary: 'Its name', names: 'tenant' }],
  options: archiveOptions,
  examples: ['rillflow tenants archive acme --output ./acme-2026'],
  async run({ out, open, arguments: { tenant }, options: { output, includeSnapshots }, signal }) {
    const { tenants } = await openTenants({ open })
    const bar = out.progress(`Archiving ${tenant}`)
    const manifest = await tenants
      .archive(tenant, { output, includeSnapshots, signal, onProgress: rowsOf(bar) })
      .finally(() => bar.end())
    out.print({ tenant, output, ...manifest }, style => archiveText(style, `tenant ${tenant}`, output, manifest))
  },
})

// `rillflow tenants import`: two ways to a new tenant, an archive or a part of another schema.

const importTenant = defineCommand({
  description:
    'From an archive: INPUT is its folder, and there must be no such tenant, or an empty one. From a schema: INPUT is the name of the tenant to make, and the module of --select has as its default export what to take: { stream, collections, document }, or a function that gives it for the name of the tenant. The source is only read; an import that was cut off goes on when it is called again.',
  arguments: [{ name: 'input', summary: 'The folder of an archive; with --from-schema the tenant to make' }],
  options: {
    as: { kind: 'text', value: 'NAME', summary: 'Of an archive: another name than the tenant had' },
    fromSchema: { kind: 'text', value: 'SCHEMA', summary: 'Take a part of this schema of the same database' },
    select: { kind: 'text', value: 'MODULE', summary: 'With --from-schema: says whose each stream and document is' },
    server: serverOption,
  },
  examples: [
    'rillflow tenants import ./acme-2026 --as acme-copy',
    'rillflow tenants import acme --from-schema public --select ./whose.mjs',
  ],
  async run({ out, open, arguments: { input }, options: { as, fromSchema, select, server }, signal }) {
    if ((fromSchema === undefined) !== (select === undefined))
      throw new WrongUsage({
        reason: '--from-schema and --select belong together: what to take of that schema',
        hint: 'rillflow tenants import --help',
      })
    const selection = select === undefined ? undefined : await selectionOf(select, input)
    const { tenants } = await openTenants({ open }, { migrate: true, creates: true })
    if (selection === undefined) await fromArchive(tenants, { input, tenant: as, server }, { out, signal })
    else await fromPart(tenants, { tenant: input, schema: fromSchema!, select: selection, server }, { out, signal })
  },
})

type Around = Pick<Invocation, 'out' | 'signal'>

async function fromArchive(
  tenants: Tenants,
  { input, ...options }: { input: string; tenant: string | undefined; server: string | undefined },
  { out, signal }: Around,
): Promise<void> {
  const bar = out.progress('Importing')
  const { manifest, ...placement } = await tenants
    .import(input, { ...options, signal, onProgress: rowsOf(bar) })
    .finally(() => bar.end())
  out.print({ ...placement, manifest }, style => importedText(style, `tenant ${placement.tenant}`, manifest))
}

async function fromPart(
  tenants: Tenants,
  { tenant, ...options }: { tenant: string; schema: string; select: Selection; server: string | undefined },
  { out, signal }: Around,
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
    const told = [count(streams, 'stream'), count(events, 'event'), count(documents, 'document')].join(', ')
    return `${style.colour.green('Imported')} tenant ${tenant}: ${told}, of the log up to position ${position}.`
  })
}

async function selectionOf(path: string, tenant: string): Promise<Selection> {
  const given = await importDefault(path)
  const selection: unknown = typeof given === 'function' ? await given(tenant) : given
  if (typeof selection === 'object' && selection !== null) return selection as Selection
  throw new ConfigFailed({
    path,
    reason: 'its default export must be { stream, collections, document }, or a function that gives it',
  })
}

const drop = defineCommand({
  description:
    'Events, documents, read models and workflows of it are gone for good. `tenants archive` keeps them elsewhere first.',
  arguments: [{ name: 'tenant', summary: 'Its name', names: 'tenant' }],
  examples: ['rillflow tenants drop acme --dry-run', 'rillflow tenants drop acme --yes'],
  destructive: true,
  async run({ out, open, confirm, arguments: { tenant } }) {
    const { tenants, where } = await openTenants({ open }, { migrate: 'manual' })
    const { schema, head, bytes: size } = await tenants.status(tenant)
    const held = `a log up to position ${head} and ${bytes(size)}`
    if (!(await confirm(`drop tenant ${tenant} of ${where}, which holds ${held}, and everything in it`))) return
    await tenants.drop(tenant, { force: true })
    out.print({ tenant, schema, dropped: true }, () => `Dropped tenant ${tenant}.`)
  },
})

const move = defineCommand({
  description:
    'Writers wait for the last step alone. A move that was interrupted goes on when it is called again; called for the server where the tenant is, it is undone.',
  arguments: [
    { name: 'tenant', summary: 'Its name', names: 'tenant' },
    { name: 'server', summary: 'Where to: a server of the directory' },
  ],
  options: {
    pauseMs: {
      kind: 'whole',
      value: 'MS',
      default: 10_000,
      summary: 'The longest that writers may wait; a move that would take longer does not happen',
    },
    keepSource: { kind: 'flag', summary: 'Keep what was copied on the old server, under another name' },
  },
  examples: ['rillflow tenants move acme eu-2'],
  async run({ out, open, arguments: { tenant, server }, options: { pauseMs, keepSource }, signal }) {
    const { tenants } = await openTenants({ open })
    const bar = out.progress(`Moving ${tenant}`)
    const moved = await tenants
      .move(
        tenant,
        { server },
        { pauseMs, keepSource, signal, onProgress: ({ rows, totalRows }) => bar.update(rows, totalRows, 'row') },
      )
      .finally(() => bar.end())
    out.print(moved, style => {
      if (moved.moved === undefined) return `Tenant ${tenant} is on server ${moved.server}.`
      const { events, rows, pausedMs } = moved.moved
      const told = `${count(events, 'event')} and ${count(rows, 'other row')} copied, writers waited ${duration(pausedMs)}`
      return `${style.colour.green('Moved')} tenant ${tenant} to server ${moved.server}: ${told}.`
    })
  },
})

export const tenants: Commands = defineVerbs({
  ensure: ['Make a tenant, or bring the schema of one up to date', ensure],
  list: ['Who there is, and where', list],
  status: ['Version, drift, size and lag', status],
  sync: ['Bring the schemas of all up to date', sync],
  archive: ['Write all that a tenant has into a folder', archive],
  import: ['Make a tenant of an archive, or of a part of another schema', importTenant],
  drop: ['Delete a tenant with all it has', drop],
  move: ['Move a tenant to another server while it is used', move],
})
