/**
 * Who may write into the incoming schema. Its comment names one mover; each transaction that writes into it takes the
 * schema's lock and looks. So a mover that was thought dead, and comes back while another goes on in its place, changes
 * nothing any more, and whoever takes over, activates or discards waits for the one transaction that may be under way.
 */
import { randomUUID } from 'node:crypto'
import type { Transaction } from '../../database/database.ts'
import { identifier, literal, sql } from '../../database/sql.ts'
import { lockKey } from '../../schema/migrate.ts'
import { MoveTakenOver } from './errors.ts'
import type { Move } from './move.ts'

export interface Claim {
  readonly mark: string
  readonly signal: AbortSignal | undefined
}

/** How long a transaction of a move may take where nobody waits for it. */
export const dayMs = 86_400_000

export function newClaim(signal: AbortSignal | undefined): Claim {
  return { mark: `${prefix}${randomUUID()}`, signal }
}

/** A transaction on the target that has the incoming schema for itself, whoever's it is. */
export function alone<T>(
  { target, incoming }: Move,
  work: (tx: Transaction, mark: string | undefined) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  return target.database.transaction(
    async tx => {
      await tx.run(sql`/* moving.lock */
        select pg_advisory_xact_lock(${lockKey(incoming)}::bigint)`)
      const [found] = await tx.run<{ mark: string | null }>(sql`/* moving.mark */
        select obj_description(oid, 'pg_namespace') as mark
        from pg_namespace
        where nspname = ${incoming}::text`)
      return work(tx, found === undefined ? undefined : (found.mark ?? ''))
    },
    { timeoutMs: dayMs, signal, isolation: 'read committed' },
  )
}

/** The same, only while the incoming schema is this mover's. */
export function claimed<T>(move: Move, claim: Claim, work: (tx: Transaction) => Promise<T>): Promise<T> {
  const check = (tx: Transaction, mark: string | undefined): Promise<T> => {
    if (mark !== claim.mark) throw new MoveTakenOver({ schema: move.incoming })
    return work(tx)
  }
  return alone(move, check, claim.signal)
}

export async function writeMark(tx: Transaction, schema: string, mark: string): Promise<void> {
  await tx.query(`comment on schema ${identifier(schema)} is ${literal(mark)}`)
}

/** Whether a schema's comment says that it was made by a move and is not in use yet. */
export function isIncoming(mark: string | undefined): boolean {
  return mark?.startsWith(prefix) === true
}

const prefix = 'rillflow incoming '
