/** A copy under way: how far it is stands in the target, and moves in the transactions that write. */

import type { Transaction } from '../../database/database.ts'
import { type Identifier, identifier, sql } from '../../database/sql.ts'
import { library } from '../../parts.ts'
import type { Place } from '../place.ts'
import type { TableShape } from '../table-shape.ts'
import { SchemaNotEmpty } from './errors.ts'
import { setSequences } from './import.ts'
import { longestMs } from './manifest.ts'
import { prepareSchema } from './prepare.ts'
import { makeIndexes, makeTable, readShapes, runDdl } from './tables.ts'

export interface Copy {
  readonly source: Place
  readonly target: Place
  readonly state: CopyState
  /** One transaction on the target, with which the state changes. */
  write(change: Partial<CopyState>, work: (tx: Transaction) => Promise<void>): Promise<void>
}

export interface CopyState {
  /** The schema it comes from. */
  readonly source: string
  readonly collections: readonly string[]
  /** Events after it are not copied. */
  readonly position: string
  /** The parts that are done. */
  readonly done: readonly string[]
  /** Of the part under way, all up to this name is done. */
  readonly after: string
  /** Of the names after that one, the events, or earlier versions, up to this one are stored. */
  readonly afterEvent: Key
  readonly streams: number
  readonly events: number
  readonly documents: number
}

/** A name, and a version under it. */
export type Key = readonly [name: string, version: string]

export const firstKey: Key = ['', '0']

/** Called between two transactions: tells how far it is, and throws where the import is to end. */
export type Step = (doing: 'copy' | 'compare', table: string) => void

/** Makes the target, with the tables of the chosen collections, and marks it as unfinished. */
export async function beginCopy(
  source: Place,
  target: Place,
  collections: readonly string[],
  tables: readonly TableShape[],
): Promise<Copy> {
  const position = await settledPosition(source)
  const none = { done: [], after: '', afterEvent: firstKey, streams: 0, events: 0, documents: 0 }
  const state: CopyState = { source: source.schema, collections, position: `${position}`, ...none }
  const { schema } = target
  const begin = async (tx: Transaction): Promise<void> => {
    await prepareSchema(tx, schema, library)
    const known = new Set((await readShapes(tx, schema)).map(table => table.name))
    for (const table of tables.filter(({ name }) => !known.has(name))) {
      await makeTable(tx, schema, table)
      await makeIndexes(tx, schema, table)
    }
    await runDdl(tx, `alter table ${identifier(schema, 'migrations')} rename to ${identifier(hiddenName)}`)
    await runDdl(tx, `create table ${markOf(target)} (id integer primary key, state jsonb not null)`)
    await tx.run(sql`/* archive.begin_copy */
      insert into ${markOf(target)} (id, state)
      values (1, ${JSON.stringify(state)}::jsonb)`)
  }
  await target.database.transaction(begin, { timeoutMs: longestMs })
  return openCopy(source, target, state)
}

/** The copy that was cut off in the target; undefined if there is none. */
export async function resumeCopy(
  source: Place,
  target: Place,
  collections: readonly string[],
): Promise<Copy | undefined> {
  const [found] = await target.database.run<{ is_there: boolean }>(sql`/* archive.find_copy */
    select to_regclass(${markOf(target).quoted}::text) is not null as is_there`)
  if (found?.is_there !== true) return undefined
  const [row] = await target.database.run<{ state: CopyState }>(sql`/* archive.read_copy */
    select state
    from ${markOf(target)}`)
  const { state } = row!
  if (state.source !== source.schema || JSON.stringify(state.collections) !== JSON.stringify(collections))
    throw new SchemaNotEmpty({
      schema: target.schema,
      reason: `has the unfinished import of other collections or another schema ("${state.source}") in it`,
    })
  return openCopy(source, target, state)
}

/** Makes the target a store. */
export async function finishCopy({ target, state }: Copy): Promise<void> {
  const finish = async (tx: Transaction): Promise<void> => {
    await setSequences(tx, target.schema, { events_position: state.position })
    await runDdl(tx, `drop table ${markOf(target)}`)
    await runDdl(tx, `alter table ${identifier(target.schema, hiddenName)} rename to ${identifier('migrations')}`)
  }
  await target.database.transaction(finish)
}

/** What the table of migrations is called until then. */
export const hiddenName = 'migrations__unfinished'

function markOf({ schema }: Place): Identifier {
  return identifier(schema, 'unfinished_import')
}

async function settledPosition({ database, schema }: Place): Promise<number> {
  const [row] = await database.run<{ settled: number }>(sql`/* archive.settled */
    select settled
    from ${identifier(schema, 'settle')}()`)
  return row!.settled
}

function openCopy(source: Place, target: Place, begun: CopyState): Copy {
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
        const moved = await tx.run(sql`/* archive.advance_copy */
          update ${markOf(target)}
          set state = ${JSON.stringify(next)}::jsonb
          where state = ${JSON.stringify(state)}::jsonb
          returning id`)
        if (moved.length === 0)
          throw new SchemaNotEmpty({ schema: target.schema, reason: 'is being filled by another process' })
        await work(tx)
      }
      await target.database.transaction(advance, { timeoutMs: 120_000 })
      state = next
    },
  }
}
