/**
 * `rillflow projections`: read models, and the work that only they need. A projection is also a consumer: `rillflow consumers`
 * shows it in detail, pauses it and runs it.
 *
 *     look       list · rows
 *     control    rebuild · rehearse · switch
 *
 * `rebuild`, and a switch to inline, need the code of the projection from the configuration.
 *
 * What can fail: a projection that is not known; the error suggests the nearest name. Without code, commands that need it
 * fail with `NothingRegistered`.
 */
import { type Argument, type Commands, defineCommand, defineVerbs, type Invocation, type Opened } from '../command.ts'
import { listCommand, pageOptions, printPage } from '../list-command.ts'
import { count, duration } from '../output/amount.ts'
import { NothingRegistered } from '../report-error.ts'
import { consumerColumns } from './consumers.ts'

const projection = {
  name: 'name',
  summary: 'The name of the projection',
  completes: 'projection',
} as const satisfies Argument

const list = listCommand({
  description: 'The same as `consumers list --kind projection`.',
  options: pageOptions,
  examples: ['rillflow projections list', 'rillflow projections list --json'],
  empty: 'There are no projections.',
  list: (store, page) => store.consumers.list({ kind: 'projection', ...page }),
  columns: () => [
    { title: 'PROJECTION', of: ({ name }) => name, cut: true, paint: (_, colour) => colour.cyan },
    ...consumerColumns,
  ],
})

const rebuild = defineCommand({
  description:
    'The old read model is used until the new one replaces it. A rebuild that was interrupted is resumed by the next call.',
  arguments: [projection],
  options: {
    restart: { kind: 'flag', summary: 'Discard the work of an interrupted rebuild' },
    switchMs: {
      kind: 'whole',
      value: 'MS',
      default: 600_000,
      summary: 'The maximum time to wait for table locks when the new read model replaces the old one',
    },
  },
  examples: ['rillflow projections rebuild order-totals'],
  async run({ out, arguments: { name }, options: { restart, switchMs }, signal, open, config }) {
    const { store } = await openWithProjections({ open, config })
    const bar = out.progress(`Rebuilding ${name}`)
    const rebuilt = await store.projections
      .rebuild(name, {
        ...{ restart, switchMs, signal },
        onProgress: ({ position, head }) => bar.update(position, head, 'position'),
      })
      .finally(() => bar.end())
    out.print({ projection: name, ...rebuilt }, style => {
      const { events, position, durationMs } = rebuilt
      const result = `${count(events, 'event')} in ${duration(durationMs)}, up to position ${position}`
      return `${style.colour.green('Rebuilt')} ${name}: ${result}.`
    })
  },
})

const rehearse = defineCommand({
  description:
    'Builds the read model with the code of the configuration in a second table, compares it with the one in use and discards it.',
  arguments: [projection],
  examples: ['rillflow projections rehearse order-totals'],
  async run({ out, arguments: { name }, signal, open, config }) {
    const { store } = await openWithProjections({ open, config })
    const bar = out.progress(`Rehearsing ${name}`)
    const found = await store.projections
      .rehearse(name, { signal, onProgress: ({ position, head }) => bar.update(position, head, 'position') })
      .finally(() => bar.end())
    out.print({ projection: name, ...found }, () =>
      found.tables
        .map(
          ({ table, same, added, removed, changed }) =>
            `${table}: ${count(changed, 'row')} would change, ${added} be added, ${removed} be removed; ${same} stay.`,
        )
        .join('\n'),
    )
  },
})

const switchLifecycle = defineCommand({
  description:
    'An inline projection is applied in the transaction of each append, an async one soon after it. Writers pause only for the last step. A projection that is inline already gets the version and the event types of the configuration. `rillflow run` does the same for all projections when it starts.',
  arguments: [projection],
  options: {
    lifecycle: {
      kind: 'text',
      value: 'LIFECYCLE',
      choices: ['inline', 'async'],
      summary: 'The new lifecycle, by default that of the configuration',
    },
  },
  examples: ['rillflow projections switch orders', 'rillflow projections switch orders --lifecycle async'],
  async run({ out, arguments: { name }, options: { lifecycle }, open, config }) {
    // To make a projection async no code is needed.
    const { store } =
      lifecycle === 'async' ? await open({ purpose: 'write' }) : await openWithProjections({ open, config })
    await store.projections.switch(name, { lifecycle })
    const status = await store.consumers.status(name)
    out.print(status, () => `${name} is ${status.state === 'inline' ? 'inline' : 'async'}.`)
  },
})

const rows = defineCommand({
  description: 'Shows the rows of one of its tables by primary key. Needs the code of the projection.',
  arguments: [projection],
  options: {
    table: { kind: 'text', value: 'TABLE', summary: 'The table, as the code names it. Default: the first' },
    ...pageOptions,
  },
  examples: ['rillflow projections rows order-totals --limit 10'],
  async run({ out, arguments: { name }, options, open }) {
    const { store } = await open()
    const page = await store.projections.rows(name, options)
    const others = Object.keys(page.items[0] ?? {}).filter(each => !page.primaryKey.includes(each))
    const names = [...page.primaryKey, ...others]
    const columns = names.map(each => ({
      title: each.toUpperCase(),
      of: (row: Readonly<Record<string, unknown>>) =>
        typeof row[each] === 'object' ? JSON.stringify(row[each]) : String(row[each]),
      cut: true,
    }))
    printPage(out, page, () => columns, `${page.table} has no rows.`)
  },
})

export const projections: Commands = defineVerbs({
  list: ['Show all projections and how far they are', list],
  rows: ['Show the rows of a read model', rows],
  rebuild: ['Fill a read model again from the log', rebuild],
  rehearse: ['Show what a rebuild would change, and change nothing', rehearse],
  switch: ['Make a projection inline or async', switchLifecycle],
})

/** Fails if the configuration has no projections. */
async function openWithProjections({ open, config }: Pick<Invocation, 'open' | 'config'>): Promise<Opened> {
  const opened = await open({ purpose: 'write' })
  if (opened.store.runners.registered().projections.length === 0)
    throw new NothingRegistered({ what: 'projections', path: (await config())?.path })
  return opened
}
