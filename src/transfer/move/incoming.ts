/**
 * The schema that a store comes into: made, kept in step with the source's tables, put into use or thrown away.
 *
 * The bodies of our functions name the schema they are for. So it is made under its last name and renamed to the incoming
 * one in the same transaction: its functions then name what is not there, and whoever writes by the last name reaches
 * nothing, until one statement gives that name back.
 */

import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { toRillflowError } from '../../database/sqlstate.ts'
import { library } from '../../parts.ts'
import { emptyHistory, functionName, historySteps, readHistory } from '../../schema/history.ts'
import { lockKey } from '../../schema/migrate.ts'
import { migrationName } from '../../schema/migration.ts'
import type { Place } from '../place.ts'
import { alone, type Claim, dayMs, isIncoming, newClaim, writeMark } from './claim.ts'
import { closeDoor, isClosedNow, occupantOf, openDoor } from './door.ts'
import { MoveRefused, MoveTakenOver } from './errors.ts'
import type { Move } from './move.ts'
import { markOf, stateOf } from './state.ts'
import { readStructure, type Structure } from './structure.ts'

/** Makes the incoming schema, or takes over the one that a mover before left. */
export async function claimIncoming(move: Move, signal: AbortSignal | undefined): Promise<Claim> {
  await refuseUnfit(move)
  const claim = newClaim(signal)
  const { target, incoming } = move
  const work = async (tx: Transaction, mark: string | undefined): Promise<void> => {
    const there = await occupantOf(tx, target.schema)
    const refuse = (schema: string): never => {
      throw new MoveRefused({ schema, reason: 'there is a schema of that name on the target already' })
    }
    if (there !== 'none' && there !== 'closed') refuse(target.schema)
    if (mark !== undefined && !isIncoming(mark)) refuse(incoming)
    if (mark === undefined) await make(tx, move, there === 'closed')
    await writeMark(tx, incoming, claim.mark)
  }
  await alone(move, work, signal)
  return claim
}

async function refuseUnfit({ source, target }: Move): Promise<void> {
  const refuse = (reason: string): never => {
    throw new MoveRefused({ schema: source.schema, reason })
  }
  const isServer = source.database.engine === 'postgres' && target.database.engine === 'postgres'
  if (!isServer || source.database === target.database) refuse('only from one server to another')
  if ((await occupantOf(source.database, source.schema)) !== 'live')
    refuse('there is no store of that name on the source')
  const history = await readHistory(source.database, source.schema, library)
  const strange = [
    ...[...history.pending, ...history.changed, ...history.unknown].map(migrationName),
    ...[...history.outdated.map(each => each.name), ...history.newer].map(name => functionName({ name })),
  ]
  if (strange.length > 0) refuse(`it is not of this library's version (${strange.join(', ')}): sync it first`)
}

async function make(tx: Transaction, { target, incoming }: Move, isClosed: boolean): Promise<void> {
  if (isClosed) await openDoor(tx, target.schema)
  for (const step of historySteps(emptyHistory(library), target.schema)) await tx.query(step.sql)
  await tx.query(`alter schema ${identifier(target.schema)} rename to ${identifier(incoming)}`)
  if (isClosed) await closeDoor(tx, target.schema)
}

/** Gives the incoming schema the tables that the source has now, and tells what those are. */
export async function shapeIncoming(source: Executor, move: Move, tx: Transaction): Promise<Structure> {
  const [wanted, found] = await Promise.all([
    readStructure(source, move.source.schema),
    readStructure(tx, move.incoming),
  ])
  const left = wanted.others.filter(each => !found.others.includes(each))
  if (left.length > 0) {
    const reason = `it would leave behind: ${left.join(', ')}. Move it out of the schema first`
    throw new MoveRefused({ schema: move.source.schema, reason })
  }
  const isKept = (name: string): boolean => found.tables.get(name)?.signature === wanted.tables.get(name)?.signature
  for (const name of found.tables.keys())
    if (!isKept(name)) await ddl(tx, `drop table ${identifier(move.incoming, name)}`, name)
  for (const table of wanted.tables.values())
    if (!isKept(table.name)) for (const text of table.create(move.incoming)) await ddl(tx, text, table.name)
  return wanted
}

async function ddl(tx: Transaction, text: string, table: string): Promise<void> {
  try {
    await tx.query(text)
  } catch (error) {
    throw toRillflowError(error, `table ${table}`)
  }
}

/**
 * Puts the incoming schema into use: the one with this mark, of which it is known that the source has given the store up.
 * Under another mark it may be that of a later move, while the source is in use again.
 */
export function useIncoming(move: Move, known: string | undefined): Promise<void> {
  return alone(move, async (tx, mark) => {
    if (mark === undefined) return
    if (mark !== known) throw new MoveTakenOver({ schema: move.incoming })
    const { target, incoming } = move
    if ((await occupantOf(tx, target.schema)) === 'closed') await openDoor(tx, target.schema)
    await tx.query(`comment on schema ${identifier(incoming)} is null`)
    await tx.query(`alter schema ${identifier(incoming)} rename to ${identifier(target.schema)}`)
  })
}

/** Finishes a move that was cut off after the source had given the store up. */
export async function activate(move: Move): Promise<void> {
  // Read before the source is asked: what has a mark by now was begun while the source had the store.
  const mark = await markOf(move.target.database, move.incoming)
  const state = await stateOf(move)
  if (state === 'active') return
  if (state !== 'switched')
    throw new MoveRefused({ schema: move.source.schema, reason: 'the source has not given it up' })
  await useIncoming(move, mark)
}

/** Takes a move back that has not switched; the source goes on as if there had been none. */
export async function discard(move: Move): Promise<void> {
  const { source } = move
  const work = async (tx: Transaction): Promise<void> => {
    await lockSchema(tx, source.schema)
    if ((await occupantOf(tx, source.schema)) !== 'live')
      throw new MoveRefused({
        schema: source.schema,
        reason: 'it has switched already; activate it, then move it back',
      })
    await alone(move, async (there, mark) => {
      if (isIncoming(mark)) await there.query(`drop schema ${identifier(move.incoming)} cascade`)
    })
  }
  await source.database.transaction(work, { timeoutMs: dayMs, isolation: 'read committed' })
}

/**
 * Frees the space that the store took on the source. The closed door stays: who looked the store up before it moved, and
 * has been asleep since, must not make it anew there.
 */
export async function dropRetired(move: Move): Promise<void> {
  const { source, retired } = move
  if ((await stateOf(move)) !== 'active')
    throw new MoveRefused({ schema: source.schema, reason: 'the target is not in use yet' })
  await source.database.transaction(tx => tx.query(`drop schema if exists ${identifier(retired)} cascade`))
}

/** What an earlier move away from the source has left there; the name is needed again. */
export async function dropEarlier({ source, retired }: Move, signal: AbortSignal | undefined): Promise<void> {
  const work = async (tx: Transaction): Promise<void> => {
    await lockSchema(tx, source.schema)
    // Of a store that is here it is nothing but an old copy.
    if ((await occupantOf(tx, source.schema)) === 'live')
      await tx.query(`drop schema if exists ${identifier(retired)} cascade`)
  }
  await source.database.transaction(work, { timeoutMs: dayMs, signal, isolation: 'read committed' })
}

/**
 * Where a store that has moved away is to be made again: its name is free from then on. `confirm` throws if the store is
 * elsewhere. It is asked after the door was found closed: what was known before may be of a time before the move.
 */
export async function reopen({ database, schema }: Place, confirm: () => Promise<void>): Promise<void> {
  if (!(await isClosedNow(database, schema))) return
  await database.transaction(async tx => {
    await lockSchema(tx, schema)
    if ((await occupantOf(tx, schema)) !== 'closed') return
    await openDoor(tx, schema)
    await confirm()
  })
}

/** Migrations hold it, and a switch until its commit has ended, also one whose process is gone. */
async function lockSchema(tx: Transaction, schema: string): Promise<void> {
  await tx.run(sql`/* moving.lock_source */
    select pg_advisory_xact_lock(${lockKey(schema)}::bigint)`)
}
