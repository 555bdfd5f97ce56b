/**
 * Imports a selection: some streams and documents of one schema become a store of their own. This is the way from one
 * schema for all to a schema per tenant.
 *
 *     begin ─► selected streams ─► aliases, idempotency keys ─► selected documents ─► compare ─► complete
 *       └── each transaction also stores the progress, so a call after an interruption continues from there ──┘
 *
 * Copied: of a selected stream its row, all events up to the position that was settled when the import began (with their
 * positions, ids and versions), its aliases, and the idempotency keys whose events were all copied; of a selected document
 * all columns, and its history if its collection has one.
 * Not copied: read models and snapshots, which are made again from the events; consumers, dead letters and workflows,
 * which belong to the log as a whole.
 *
 * Guarantees:
 * - The target becomes a store only after all of it was compared with the source, row by row. Until then its table of
 *   migrations has another name, so that nothing opens it.
 * - The source is only read.
 *
 * What can fail: a document that changes during the import makes the comparison fail (`ImportDiffers`). Events that are
 * appended during the import are not copied; the outcome says up to which position they were. So stop the writers of the
 * selected data first.
 */

import { throwIfAborted } from '../../core/abort.ts'
import { InvalidOption } from '../../core/errors.ts'
import type { Transaction } from '../../database/database.ts'
import { type Identifier, identifier, sql } from '../../database/sql.ts'
import { library } from '../../parts.ts'
import { openSchema } from '../../schema/schema.ts'
import { TableRegistry } from '../../schema/table.ts'
import { makeIndexes, makeTable, readShapes, runDdl, type TableShape } from '../table-shape.ts'
import { maxTransferMs, type StoreLocation } from '../transfer.ts'
import { compareSelection } from './compare-selection.ts'
import {
  copyDocuments,
  copyRelated,
  copyStreams,
  documentTables,
  type SelectedDocument,
  type SelectedStream,
} from './copy-selection.ts'
import { SchemaNotEmpty } from './errors.ts'
import { prepareSchema, setSequences } from './import.ts'
import { firstKey, type Key } from './rows.ts'

export interface SelectionOptions {
  readonly select: Selection
  readonly onProgress?: ((progress: SelectionProgress) => void) | undefined
  readonly signal?: AbortSignal | undefined
}

/**
 * The streams and documents to copy. The functions are called once for each, and must answer the same in every call.
 */
export interface Selection {
  /** Default: no stream. */
  stream?(stream: SelectedStream): boolean
  /** The collections to copy from. A read model is not one, although its table looks like one. Default: none. */
  readonly collections?: readonly string[] | undefined
  /** Which of their documents. Default: all. */
  document?(collection: string, document: SelectedDocument): boolean
}

export interface SelectionProgress {
  readonly phase: 'copying' | 'comparing'
  readonly table: string
  /** Copied so far, including earlier calls. */
  readonly streams: number
  readonly events: number
  readonly documents: number
  /** Events after this position are not copied. */
  readonly position: number
}

/** Returns the numbers of copied rows. */
export async function importSelection(
  source: StoreLocation,
  target: StoreLocation,
  options: SelectionOptions,
): Promise<SelectionProgress> {
  const { select, signal } = options
  const collections = select.collections ?? []
  if (select.document !== undefined && collections.length === 0)
    throw new InvalidOption({
      option: 'select.document',
      reason: 'The option "select.document" needs "select.collections", the collections to copy from.',
    })
  await openSchema(source.database, { schema: source.schema, tables: new TableRegistry(), library }).ensure('check')
  const shapes = new Map((await readShapes(source.database, source.schema)).map(shape => [shape.name, shape]))
  const tables = collections.flatMap(name => documentTables(shapes, name))
  const copy = (await resumeCopy(source, target, collections)) ?? (await beginCopy(source, target, collections, tables))
  const progress = (phase: SelectionProgress['phase'], table: string): SelectionProgress => {
    const { streams, events, documents, position } = copy.state
    return { phase, table, streams, events, documents, position }
  }
  const onStep: OnStep = (phase, table) => {
    throwIfAborted(signal)
    options.onProgress?.(progress(phase, table))
  }
  if (select.stream !== undefined) await copyStreams(copy, shapes, select.stream.bind(select), onStep)
  await copyRelated(copy, shapes, onStep)
  for (const name of collections)
    await copyDocuments(copy, shapes, name, document => select.document?.(name, document) ?? true, onStep)
  await compareSelection(copy, shapes, collections, onStep)
  await completeCopy(copy)
  return progress('comparing', 'events')
}

/** A copy that is running. Its progress is stored in the target, and moves in the transactions that write. */
export interface SelectionCopy {
  readonly source: StoreLocation
  readonly target: StoreLocation
  readonly state: CopyState
  /** Runs `work` in a transaction on the target that also stores the change of the state. */
  write(change: Partial<CopyState>, work: (tx: Transaction) => Promise<void>): Promise<void>
}

interface CopyState {
  /** The schema that is copied from. */
  readonly source: string
  readonly collections: readonly string[]
  /** Events after this position are not copied. */
  readonly position: number
  /** The parts that are complete. */
  readonly done: readonly string[]
  /** In the part that is being copied, everything up to this name is complete. */
  readonly after: string
  /** Of the names after that one, the events or earlier versions up to this key are copied. */
  readonly afterEvent: Key
  readonly streams: number
  readonly events: number
  readonly documents: number
}

/** Called between two transactions: reports the progress, and throws if the import was aborted. */
export type OnStep = (phase: SelectionProgress['phase'], table: string) => void

/** Makes the target, with the tables of the selected collections, and marks it as unfinished. */
async function beginCopy(
  source: StoreLocation,
  target: StoreLocation,
  collections: readonly string[],
  tables: readonly TableShape[],
): Promise<SelectionCopy> {
  const position = await readSettled(source)
  const nothing = { done: [], after: '', afterEvent: firstKey, streams: 0, events: 0, documents: 0 }
  const state: CopyState = { source: source.schema, collections, position, ...nothing }
  const { schema } = target
  const begin = async (tx: Transaction): Promise<void> => {
    await prepareSchema(tx, schema, library)
    const existing = new Set((await readShapes(tx, schema)).map(table => table.name))
    for (const table of tables.filter(({ name }) => !existing.has(name))) {
      await makeTable(tx, schema, table)
      await makeIndexes(tx, schema, table)
    }
    await runDdl(tx, `alter table ${identifier(schema, 'migrations')} rename to ${identifier(unfinishedMigrations)}`)
    await runDdl(tx, `create table ${stateTable(target)} (id integer primary key, state jsonb not null)`)
    await tx.run(sql`/* selection.begin */
      insert into ${stateTable(target)} (id, state)
      values (1, ${JSON.stringify(state)}::jsonb)`)
  }
  await target.database.transaction(begin, { timeoutMs: maxTransferMs })
  return openCopy(source, target, state)
}

/** The copy that was interrupted in the target; undefined if there is none. */
async function resumeCopy(
  source: StoreLocation,
  target: StoreLocation,
  collections: readonly string[],
): Promise<SelectionCopy | undefined> {
  const [found] = await target.database.run<{ exists: boolean }>(sql`/* selection.find */
    select to_regclass(${stateTable(target).quoted}::text) is not null as exists`)
  if (found?.exists !== true) return undefined
  const [row] = await target.database.run<{ state: CopyState }>(sql`/* selection.read */
    select state
    from ${stateTable(target)}`)
  const { state } = row!
  if (state.source !== source.schema || JSON.stringify(state.collections) !== JSON.stringify(collections)) {
    const reason = `has an unfinished import of other collections or of another schema ("${state.source}")`
    throw new SchemaNotEmpty({ schema: target.schema, reason })
  }
  return openCopy(source, target, state)
}

function openCopy(source: StoreLocation, target: StoreLocation, begun: CopyState): SelectionCopy {
  let state = begun
  return {
    source,
    target,
    get state() {
      return state
    },
    async write(change, work) {
      const next = { ...state, ...change }
      const advance = async (tx: Transaction): Promise<void> => {
        const advanced = await tx.run(sql`/* selection.advance */
          update ${stateTable(target)}
          set state = ${JSON.stringify(next)}::jsonb
          where state = ${JSON.stringify(state)}::jsonb
          returning id`)
        if (advanced.length === 0)
          throw new SchemaNotEmpty({ schema: target.schema, reason: 'is being filled by another process' })
        await work(tx)
      }
      await target.database.transaction(advance, { timeoutMs: 120_000 })
      state = next
    },
  }
}

/** Makes the target a store. */
async function completeCopy({ target, state }: SelectionCopy): Promise<void> {
  const { schema } = target
  await target.database.transaction(async tx => {
    await setSequences(tx, schema, { events_position: state.position })
    await runDdl(tx, `drop table ${stateTable(target)}`)
    await runDdl(tx, `alter table ${identifier(schema, unfinishedMigrations)} rename to ${identifier('migrations')}`)
  })
}

/** The name of the table of migrations until the import is complete. */
export const unfinishedMigrations = 'migrations__unfinished'

function stateTable({ schema }: StoreLocation): Identifier {
  return identifier(schema, 'unfinished_import')
}

async function readSettled({ database, schema }: StoreLocation): Promise<number> {
  const [row] = await database.run<{ settled: number }>(sql`/* selection.settled */
    select settled
    from ${identifier(schema, 'settle')}()`)
  return row!.settled
}
