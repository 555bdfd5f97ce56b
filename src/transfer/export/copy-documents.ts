/** The chosen documents of a copy, and what is kept of their earlier versions. */
import { InvalidOption } from '../../core/errors.ts'
import { historyName } from '../../documents/table.ts'
import type { TableShape } from '../table-shape.ts'
import { type Copy, firstKey, type Step } from './copy.ts'
import type { Shapes } from './copy-streams.ts'
import { inserting } from './load.ts'
import { listOfLines, readPage } from './pages.ts'

/** A document to be chosen, or not. */
export interface SelectedDocument {
  readonly id: string
  readonly version: number
  readonly data: unknown
  readonly isDeleted: boolean
}

/** The table of a collection, and that of its history if there is one. */
export function documentTables(shapes: Shapes, collection: string): TableShape[] {
  const table = shapes.get(collection)
  const isCollection = ['id', 'version', 'deleted_at', 'body'].every(
    name => table?.columns.some(column => column.name === name) === true,
  )
  if (table === undefined || !isCollection)
    throw new InvalidOption({ option: 'select.collections', reason: `there is no collection "${collection}"` })
  const history = shapes.get(historyName(collection))
  return history === undefined ? [table] : [table, history]
}

const documentsAtOnce = 100

export async function copyDocuments(
  copy: Copy,
  shapes: Shapes,
  collection: string,
  isChosen: (document: SelectedDocument) => boolean,
  onStep: Step,
): Promise<void> {
  const part = `documents ${collection}`
  const [table, history] = documentTables(shapes, collection)
  while (!copy.state.done.includes(part)) {
    onStep('copy', collection)
    const after = [copy.state.after, lastVersion] as const
    const page = await readPage(copy.source, table!, { name: 'id', after, limit: documentsAtOnce })
    const chosen = page.filter(({ line }) => isChosen(documentOf(line)))
    const last = page.at(-1)
    const change = last === undefined ? { done: [...copy.state.done, part], after: '' } : { after: last.key[0] }
    await copy.write({ ...change, documents: copy.state.documents + chosen.length }, async tx => {
      if (chosen.length > 0) await tx.run(inserting(copy.target.schema, table!, listOfLines(chosen)))
    })
  }
  if (history !== undefined) await copyHistory(copy, table!, history, onStep)
}

/** All of a name, whatever its version. */
const lastVersion = `${Number.MAX_SAFE_INTEGER}`

function documentOf(line: string): SelectedDocument {
  const { id, version, body, deleted_at: deletedAt } = JSON.parse(line)
  return { id, version, data: body, isDeleted: deletedAt !== null }
}

/** Of the documents that are in the target by now. */
async function copyHistory(copy: Copy, table: TableShape, history: TableShape, onStep: Step): Promise<void> {
  while (!copy.state.done.includes(history.name)) {
    const after = [copy.state.after, lastVersion] as const
    const documents = await readPage(copy.target, table, { name: 'id', after, limit: documentsAtOnce })
    const ids = documents.map(({ key }) => key[0])
    while (ids.length > 0) {
      onStep('copy', history.name)
      const request = { name: 'id', after: copy.state.afterEvent, among: ids, limit: documentsAtOnce }
      const page = await readPage(copy.source, history, request)
      const last = page.at(-1)
      if (last === undefined) break
      await copy.write({ afterEvent: last.key }, async tx => {
        await tx.run(inserting(copy.target.schema, history, listOfLines(page)))
      })
    }
    const last = ids.at(-1)
    const change = last === undefined ? { done: [...copy.state.done, history.name], after: '' } : { after: last }
    await copy.write({ ...change, afterEvent: firstKey }, async () => {})
  }
}
