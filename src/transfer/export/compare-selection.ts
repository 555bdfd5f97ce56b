/**
 * Compares the copy with its source: each row as the line of JSON it is written as, and then the number of rows with
 * the number that the copy has counted. A selection becomes a store only after this has found no difference.
 */
import { identifier, sql } from '../../database/sql.ts'
import type { Shapes, TableShape } from '../table-shape.ts'
import { documentTables, readStreamRows, upToPosition } from './copy-selection.ts'
import { ImportDiffers } from './errors.ts'
import { firstKey, type Key, type PageRequest, type PageRow, readPage } from './rows.ts'
import type { OnStep, SelectionCopy } from './selection.ts'

const rowsPerPage = 500

export async function compareSelection(
  copy: SelectionCopy,
  shapes: Shapes,
  collections: readonly string[],
  onStep: OnStep,
): Promise<void> {
  const { source, state } = copy
  const tables = collections.flatMap(name => documentTables(shapes, name))
  const events = shapes.get('events')!
  // One row more than the page of the target has, because a further row in the source is a difference.
  const read = async (table: TableShape, page: readonly PageRow[], request: Omit<PageRequest, 'limit'>) =>
    (await readPage(source, table, { ...request, limit: page.length + 1, maxBytes: Number.MAX_SAFE_INTEGER })).rows
  await compareTable(copy, events, 'stream', onStep, (after, upTo, among, page) =>
    read(events, page, { name: 'stream', after, upTo, among, where: upToPosition(copy) }),
  )
  await compareTable(copy, shapes.get('streams')!, 'stream', onStep, (_after, _upTo, _among, page) =>
    readStreamRows(
      copy,
      page.map(({ key }) => key[0]),
    ),
  )
  for (const table of tables)
    await compareTable(copy, table, 'id', onStep, (after, upTo, among, page) =>
      read(table, page, { name: 'id', after, upTo, among }),
    )
  await compareCount(copy, ['events'], state.events)
  await compareCount(copy, ['streams'], state.streams)
  await compareCount(copy, collections, state.documents)
}

/** Reads the source's rows after one key and up to another, of these names. */
type ReadSource = (
  after: Key,
  upTo: Key | undefined,
  among: readonly string[],
  page: readonly PageRow[],
) => Promise<readonly PageRow[]>

async function compareTable(
  copy: SelectionCopy,
  table: TableShape,
  name: string,
  onStep: OnStep,
  readSource: ReadSource,
): Promise<void> {
  for (let after = firstKey, isMore = true; isMore; ) {
    onStep('comparing', table.name)
    const { rows: page, isMore: hasNext } = await readPage(copy.target, table, { name, after, limit: rowsPerPage })
    isMore = hasNext
    // The last name of the page before is included, because rows at its end may be missing in the target.
    const among = [...new Set([after[0], ...page.map(({ key }) => key[0])])]
    const found = await readSource(after, isMore ? page.at(-1)!.key : undefined, among, page)
    const differsAt = page.findIndex(({ line }, at) => line !== found[at]?.line)
    const differing = differsAt >= 0 ? page[differsAt] : found[page.length]
    if (differing !== undefined) {
      const near = differing.key.join(' version ')
      throw new ImportDiffers({ schema: copy.target.schema, table: table.name, near })
    }
    after = page.at(-1)?.key ?? after
  }
}

async function compareCount({ target }: SelectionCopy, tables: readonly string[], expected: number): Promise<void> {
  let found = 0
  for (const table of tables) {
    const [row] = await target.database.run<{ rows: number }>(sql`/* selection.count */
      select count(*) as rows
      from ${identifier(target.schema, table)}`)
    found += Number(row!.rows)
  }
  if (found === expected) return
  const near = `its end: it has ${found} rows instead of ${expected}`
  throw new ImportDiffers({ schema: target.schema, table: tables.join(', '), near })
}
