/** `rillflow tenants import`: two ways to a new tenant, an archive or a part of another schema. */

import type { Tenants } from '../../tenants/tenants.ts'
import type { Selection } from '../../transfer/export/selection.ts'
import { importedText, rowsOf } from '../archive.ts'
import { type Command, defineCommand, type Invocation } from '../command.ts'
import { importDefault } from '../configuration.ts'
import { count } from '../output/amount.ts'
import { ConfigFailed, WrongUsage } from '../usage.ts'
import { openTenants, serverOption } from './open.ts'

export const importCommand: Command = defineCommand({
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
    .import({ input, ...options, signal, onProgress: rowsOf(bar) })
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
