/**
 * A part of one store as a store of its own: the way from one schema to tenants.
 *
 *     begin ─► chosen streams ─► aliases, keys ─► chosen documents ─► compare ─► finished
 *       └── each step keeps how far it is in the same transaction; a run that was cut off is gone on with ──┘
 *
 * What goes along: of a chosen stream all events up to the position that was settled when the import began, with their
 * positions, ids and versions, its row, its aliases, and the idempotency keys whose events all came along; of a chosen
 * document all columns, and its history if one is kept.
 * What does not: read models and snapshots, which are made again from the events; consumers with their checkpoints, dead
 * letters and workflows, which belong to the log as a whole.
 *
 * The target is no store until all of it was compared with the source, row by row: its table of migrations has another name
 * until then, so that nothing opens it. Appends to the source while this runs are not copied beyond the first position, which
 * the outcome tells; a document that changes meanwhile makes the comparison fail (`ImportDiffers`). So stop who writes what
 * is moved. The source is only read.
 */
import { InvalidOption } from '../../core/errors.ts'
import { throwIfAborted } from '../../core/lifecycle.ts'
import { library } from '../../parts.ts'
import { openSchema } from '../../schema/schema.ts'
import { TableRegistry } from '../../schema/table.ts'
import type { Place } from '../place.ts'
import { compareTables } from './compare.ts'
import { beginCopy, finishCopy, resumeCopy, type Step } from './copy.ts'
import { copyDocuments, documentTables, type SelectedDocument } from './copy-documents.ts'
import { copyRelated, copyStreams, type SelectedStream } from './copy-streams.ts'
import { readShapes } from './tables.ts'

export interface SelectOptions {
  readonly select: Selection
  readonly onProgress?: ((progress: SelectProgress) => void) | undefined
  readonly signal?: AbortSignal | undefined
}

/** What is copied. The functions are asked once for each, and must give the same answer in a run that goes on. */
export interface Selection {
  /** Default: no stream. */
  stream?(stream: SelectedStream): boolean
  /** The collections to look into. A read model is none, although its table looks like one. Default: none. */
  readonly collections?: readonly string[] | undefined
  /** Which of their documents. Default: all. */
  document?(collection: string, document: SelectedDocument): boolean
}

export interface SelectProgress {
  /** What is being done now: copying, or comparing, this table. */
  readonly doing: 'copy' | 'compare'
  readonly table: string
  /** Copied so far, by earlier runs too. */
  readonly streams: number
  readonly events: number
  readonly documents: number
  /** Events after it were not looked at. */
  readonly position: number
}

/** Gives what was copied. */
export async function importFromSchema(source: Place, target: Place, options: SelectOptions): Promise<SelectProgress> {
  const { select, signal } = options
  const collections = select.collections ?? []
  if (select.document !== undefined && collections.length === 0)
    throw new InvalidOption({
      option: 'select.document',
      reason: 'needs select.collections, the collections to look into',
    })
  await openSchema(source.database, { schema: source.schema, tables: new TableRegistry(), library }).ensure('check')
  const shapes = new Map((await readShapes(source.database, source.schema)).map(shape => [shape.name, shape]))
  const tables = collections.flatMap(name => documentTables(shapes, name))
  const copy = (await resumeCopy(source, target, collections)) ?? (await beginCopy(source, target, collections, tables))
  const told = (doing: 'copy' | 'compare', table: string): SelectProgress => {
    const { streams, events, documents, position } = copy.state
    return { doing, table, streams, events, documents, position: Number(position) }
  }
  const onStep: Step = (doing, table) => {
    throwIfAborted(signal)
    options.onProgress?.(told(doing, table))
  }
  if (select.stream !== undefined) await copyStreams(copy, shapes, select.stream.bind(select), onStep)
  await copyRelated(copy, shapes, onStep)
  for (const name of collections)
    await copyDocuments(copy, shapes, name, document => select.document?.(name, document) ?? true, onStep)
  await compareTables(copy, shapes, collections, onStep)
  await finishCopy(copy)
  return told('compare', 'events')
}
