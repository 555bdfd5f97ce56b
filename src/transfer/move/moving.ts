/**
 * Moving: a store goes from one PostgreSQL server to another while it is written to. Nobody can write for a moment, and
 * then only on the other side. Neither logical replication nor triggers: any two servers will do.
 *
 *     copyInto ─► live passes ─┐                                    on the source          on the target
 *     switchOver ─► live passes ─► fence: nobody writes             S                      S_in, not in use
 *                                  last pass, both sides equal
 *                                  sequences at or above            S ► S_out, closed door
 *                                  beforeRelease()
 *                                  commit ────────────────────────  ■ has given it up
 *                   ─► activate ──────────────────────────────────────────────────────────  S_in ► S
 *
 *     not begun ──► copying ──► switched ──► active           stateOf(): read from the two catalogues, nothing else
 *         ▲            │           (no owner)
 *         └──discard───┘
 *
 * One mechanism copies, catches up and verifies: each side sums up hashes of its rows, in buckets by a hash of their key
 * (`events`: in ranges of positions), and buckets that differ are deleted and copied again. What was the same once is not
 * compared again: of a large table only rows that were written since (`changes.ts`), of `events` those at its end; of the
 * rest both sides have to have as many. A pass leaves the target equal to a snapshot of the source; passes go on until
 * little changes between two; the last one is made while nobody writes.
 *
 * Guarantees:
 * - Never two owners. The target's schema gets its name only after the source's rename has committed, and that is the
 *   only way to give it. In between there is none: calls fail, and nothing is lost.
 * - Whatever was acknowledged on the source is on the target, row by row, or the switch does not happen.
 * - No write reaches the source after its commit. Writers wait for the fence's locks. When they get them they have heard
 *   of the rename: PostgreSQL reads what was invalidated with each new lock, throws away every plan when a schema is
 *   renamed, and looks the names up again. Our functions go with the schema, but their bodies name it as it was called.
 *   So prepared statements, kept plans, functions and transactions begun before all fail with what `isGone` knows.
 * - Nobody makes the tables anew where the store was: the name stays taken by a closed door (`SchemaNewer`).
 * - Positions and fences go on above those of the source.
 * - A store that is not being moved pays nothing, and one that is pays only for being read.
 *
 * What the pause costs: a few dozen round trips and a comparison of the small tables, whatever their number; of each large
 * table a scan that reads no row's contents, twice of one that rows were deleted from since the pass before; of `events` a
 * count by the primary key; and what was written since the pass before. A pause that gets longer than `pauseMs` ends
 * without a switch.
 *
 * What can fail: every step, at any time, and the process with it. Up to the commit the source has the store, as if nothing
 * had happened; another `switchOver` goes on from what is there, `discard` clears it away. After it `activate` is all that
 * is left to do. `OutcomeUnknown` and a lost connection do not tell which: `stateOf` does. A mover that was taken for dead
 * changes nothing any more once another has begun (`claim.ts`). Leases move with their rows, so who works on the target waits
 * until those of the source's holders have run out.
 *
 * Deliberately not here: where a tenant is (the directory), and what cannot be made from the migrations and the catalogue
 * (views, functions of users, triggers; refused) or belongs to a server (roles and grants; to be given on the target).
 * A table other than `events` is copied in one transaction: cut off, it begins anew.
 */
import { catchUp } from './catch-up.ts'
import { claimIncoming } from './incoming.ts'
import type { Copied, Move, MoveProgress } from './move.ts'
import { newMover } from './pass.ts'

export interface CopyOptions {
  onProgress?: ((progress: MoveProgress) => void) | undefined
  signal?: AbortSignal | undefined
}

/** Copies a store while it is written to, until little is left to copy. May be called again at any time. */
export async function copyInto(move: Move, { onProgress, signal }: CopyOptions = {}): Promise<Copied> {
  const claim = await claimIncoming(move, signal)
  return catchUp(newMover(move, claim, onProgress))
}
