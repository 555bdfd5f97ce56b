/**
 * The incoming schema: where a store is copied to on the target, until it is put into use or discarded.
 *
 *     claimIncoming ─► made, or taken over from an earlier mover ─► shapeIncoming, before each pass ─► useIncoming
 *
 * The bodies of our functions name the schema they were made for. So the schema is made under its final name and renamed
 * in the same transaction: its functions then name a schema that is not there, and a program that writes by the final
 * name reaches nothing until one statement renames it back.
 *
 * One mover writes to it. The comment of the schema names that mover; each transaction that writes takes the lock of the
 * schema and compares. So a mover that was taken for dead, and comes back while another continues in its place, changes
 * nothing more; and a process that takes over, activates or discards waits for the one transaction that may be open.
 */
import { randomId } from '../../core/host.ts'
import type { Database, Executor, Transaction } from '../../database/database.ts'
import { identifier, literal, sql } from '../../database/sql.ts'
import { toRillflowError } from '../../database/sqlstate.ts'
import { library } from '../../parts.ts'
import { emptyHistory, functionName, historySteps, readHistory } from '../../schema/history.ts'
import { lockKey } from '../../schema/migrate.ts'
import { migrationName } from '../../schema/migration.ts'
import { readNumbers } from '../../schema/numbers.ts'
import { maxTransferMs } from '../transfer.ts'
import { MoveRefused, MoveTakenOver } from './errors.ts'
import type { Move } from './move.ts'
import { readOccupant, removeMovedMarker, writeMovedMarker } from './moved-marker.ts'
import { readStructure, type Structure } from './structure.ts'

/** The right of one mover to write into the incoming schema. */
export interface Claim {
  /** The comment of the schema while the claim holds. */
  readonly mark: string
  readonly signal: AbortSignal | undefined
}

/** Makes the incoming schema, or takes over the one that an earlier mover has left. */
export async function claimIncoming(move: Move, signal: AbortSignal | undefined): Promise<Claim> {
  await refuseUnfit(move)
  const claim: Claim = { mark: `${markPrefix}${randomId()}`, signal }
  const { target, incoming } = move
  const work = async (tx: Transaction, mark: string | undefined): Promise<void> => {
    const occupant = await readOccupant(tx, target.schema)
    const refuse = (schema: string): never => {
      throw new MoveRefused({ schema, reason: 'the target already has a schema of that name' })
    }
    if (occupant !== 'none' && occupant !== 'moved') refuse(target.schema)
    if (mark !== undefined && !isIncoming(mark)) refuse(incoming)
    if (mark === undefined) await makeIncoming(tx, move, occupant === 'moved')
    await tx.query(`comment on schema ${identifier(incoming)} is ${literal(claim.mark)}`)
  }
  await withIncomingLocked(move, work, signal)
  return claim
}

async function refuseUnfit({ source, target }: Move): Promise<void> {
  const refuse = (reason: string): never => {
    throw new MoveRefused({ schema: source.schema, reason })
  }
  const areServers = source.database.engine === 'postgres' && target.database.engine === 'postgres'
  if (!areServers || source.database === target.database) refuse('a move needs two different PostgreSQL servers')
  if ((await readOccupant(source.database, source.schema)) !== 'store') refuse('the source has no store of that name')
  const history = await readHistory(source.database, source.schema, library)
  const differing = [
    ...[...history.pending, ...history.changed, ...history.unknown].map(migrationName),
    ...[...history.outdated.map(each => each.name), ...history.newer].map(name => functionName({ name })),
  ]
  if (differing.length > 0)
    refuse(`its version is not the one of this library (${differing.join(', ')}), so sync the schema first`)
}

async function makeIncoming(tx: Transaction, { target, incoming }: Move, hasMarker: boolean): Promise<void> {
  if (hasMarker) await removeMovedMarker(tx, target.schema)
  const numbers = await readNumbers(tx, target.schema)
  for (const step of historySteps(emptyHistory(library, numbers), target.schema)) await tx.query(step.sql)
  await tx.query(`alter schema ${identifier(target.schema)} rename to ${identifier(incoming)}`)
  if (hasMarker) await writeMovedMarker(tx, target.schema)
}

/** Gives the incoming schema the tables that the source has now, and returns their structure. */
export async function shapeIncoming(source: Executor, move: Move, tx: Transaction): Promise<Structure> {
  const [wanted, found] = await Promise.all([
    readStructure(source, move.source.schema),
    readStructure(tx, move.incoming),
  ])
  const missing = wanted.others.filter(each => !found.others.includes(each))
  if (missing.length > 0) {
    const reason = `a move does not copy ${missing.join(', ')}, so move it out of the schema first`
    throw new MoveRefused({ schema: move.source.schema, reason })
  }
  const isSame = (name: string): boolean => found.tables.get(name)?.signature === wanted.tables.get(name)?.signature
  for (const name of found.tables.keys())
    if (!isSame(name)) await ddl(tx, `drop table ${identifier(move.incoming, name)}`, name)
  for (const table of wanted.tables.values())
    if (!isSame(table.name)) for (const text of table.create(move.incoming)) await ddl(tx, text, table.name)
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
 * Puts the incoming schema into use, if it has the mark of a move whose source has given the store up. Under another
 * mark it may belong to a later move, while the source is in use again.
 */
export function useIncoming(move: Move, knownMark: string | undefined): Promise<void> {
  return withIncomingLocked(move, async (tx, mark) => {
    if (mark === undefined) return
    if (mark !== knownMark) throw new MoveTakenOver({ schema: move.incoming })
    const { target, incoming } = move
    if ((await readOccupant(tx, target.schema)) === 'moved') await removeMovedMarker(tx, target.schema)
    await tx.query(`comment on schema ${identifier(incoming)} is null`)
    await tx.query(`alter schema ${identifier(incoming)} rename to ${identifier(target.schema)}`)
  })
}

/** Drops the incoming schema, if a move has made it. */
export function dropIncoming(move: Move): Promise<void> {
  return withIncomingLocked(move, async (tx, mark) => {
    if (isIncoming(mark)) await tx.query(`drop schema ${identifier(move.incoming)} cascade`)
  })
}

/** Runs `work` in a transaction on the target, only while the claim on the incoming schema holds. */
export function withClaim<T>(move: Move, claim: Claim, work: (tx: Transaction) => Promise<T>): Promise<T> {
  const compare = (tx: Transaction, mark: string | undefined): Promise<T> => {
    if (mark !== claim.mark) throw new MoveTakenOver({ schema: move.incoming })
    return work(tx)
  }
  return withIncomingLocked(move, compare, claim.signal)
}

/** Runs `work` in a transaction on the target that holds the lock of the incoming schema, whatever mark it has. */
function withIncomingLocked<T>(
  { target, incoming }: Move,
  work: (tx: Transaction, mark: string | undefined) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  return target.database.transaction(
    async tx => {
      await tx.run(sql`/* move.lock_incoming */
        select pg_advisory_xact_lock(${lockKey(incoming)}::bigint)`)
      const [found] = await tx.run<{ mark: string | null }>(sql`/* move.mark */
        select obj_description(oid, 'pg_namespace') as mark
        from pg_namespace
        where nspname = ${incoming}::text`)
      return work(tx, found === undefined ? undefined : (found.mark ?? ''))
    },
    { timeoutMs: maxTransferMs, signal, isolation: 'read committed' },
  )
}

/** The mark of a schema; undefined if there is no such schema, or it has no mark. */
export async function readMark(database: Database, schema: string): Promise<string | undefined> {
  const [found] = await database.run<{ mark: string | null }>(sql`/* move.read_mark */
    select obj_description(oid, 'pg_namespace') as mark
    from pg_namespace
    where nspname = ${schema}::text`)
  return found?.mark ?? undefined
}

/** Whether a mark says that its schema was made by a move and is not in use yet. */
export function isIncoming(mark: string | undefined): boolean {
  return mark?.startsWith(markPrefix) === true
}

const markPrefix = 'rillflow incoming '
