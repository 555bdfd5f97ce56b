/** What was copied against its source, line by line, and against what the copy has counted. */

import { identifier, sql } from '../../database/sql.ts'
import type { TableShape } from '../table-shape.ts'
import { type Copy, firstKey, type Key, type Step } from './copy.ts'
import { documentTables } from './copy-documents.ts'
import { type Shapes, settledIn, streamLines } from './copy-selection.ts'
import { ImportDiffers } from './errors.ts'
import { type PageLine, readPage } from './pages.ts'

export async function compareTables(
  copy: Copy,
  shapes: Shapes,
  collections: readonly string[],
  onStep: Step,
): Promise<void> {
  const { source, state } = copy
  const tables = collections.flatMap(name => documentTables(shapes, name))
  const events = shapes.get('events')!
  await compareTable(copy, events, 'stream', onStep, (after, upTo, among) =>
    readPage(source, events, { name: 'stream', after, upTo, among, limit: mostLines, where: settledIn(copy) }),
  )
  await compareTable(copy, shapes.get('streams')!, 'stream', onStep, (_after, _upTo, _among, page) =>
    streamLines(
      copy,
      page.map(({ key }) => key[0]),
    ),
  )
  for (const table of tables)
    await compareTable(copy, table, 'id', onStep, (after, upTo, among) =>
      readPage(source, table, { name: 'id', after, upTo, among, limit: mostLines }),
    )
  await compareCount(copy, ['events'], state.events)
  await compareCount(copy, ['streams'], state.streams)
  await compareCount(copy, collections, state.documents)
}

/** One more than a page of the target has: a row too many is a difference. */
const linesAtOnce = 500
const mostLines = linesAtOnce + 1

/** Gives the source's lines after one key and up to another, of these names. */
type SourceLines = (
  after: Key,
  upTo: Key | undefined,
  among: readonly string[],
  page: readonly PageLine[],
) => Promise<PageLine[]>

async function compareTable(
  copy: Copy,
  table: TableShape,
  name: string,
  onStep: Step,
  sourceLines: SourceLines,
): Promise<void> {
  for (let after = firstKey, isMore = true; isMore; ) {
    onStep('compare', table.name)
    const page = await readPage(copy.target, table, { name, after, limit: linesAtOnce })
    isMore = page.length === linesAtOnce
    // The name of the page before is one of them: what the target lacks may be its end.
    const among = [...new Set([after[0], ...page.map(({ key }) => key[0])])]
    const found = await sourceLines(after, isMore ? page.at(-1)!.key : undefined, among, page)
    const differs = page.findIndex(({ line }, at) => line !== found[at]?.line)
    const near = differs >= 0 ? page[differs] : found[page.length]
    if (near !== undefined)
      throw new ImportDiffers({ schema: copy.target.schema, table: table.name, near: near.key.join(' version ') })
    after = page.at(-1)?.key ?? after
  }
}

async function compareCount({ target }: Copy, tables: readonly string[], wanted: number): Promise<void> {
  let found = 0
  for (const table of tables) {
    const [row] = await target.database.run<{ rows: number }>(sql`/* archive.count */
      select count(*) as rows
      from ${identifier(target.schema, table)}`)
    found += Number(row!.rows)
  }
  if (found === wanted) return
  const near = `${found} rows instead of ${wanted}`
  throw new ImportDiffers({ schema: target.schema, table: tables.join(', '), near })
}
