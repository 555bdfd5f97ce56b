/** The errors of moving a store from one server to another. */
import { defineError, type ErrorKind } from '../../core/errors.ts'

export const MoveRefused: ErrorKind<'move_refused', { schema: string; reason: string }> = defineError(
  'move_refused',
  d => `Schema "${d.schema}" cannot be moved: ${d.reason}.`,
)
export const MoveTakenOver: ErrorKind<'move_taken_over', { schema: string }> = defineError('move_taken_over', d =>
  `Another process goes on with the move into schema "${d.schema}", or has discarded it, so this one ends. Look at the state of the
move before you begin again.`.replace('\n', ' '),
)
export const MoveHeldUp: ErrorKind<
  'move_held_up',
  { schema: string; timeoutMs: number; holders: readonly { pid: number | null; query: string }[] }
> = defineError(
  'move_held_up',
  d =>
    `Writers of schema "${d.schema}" could not be stopped within ${d.timeoutMs} ms${
      d.holders.length === 0 ? '' : ` because of ${d.holders.map(each => each.pid ?? each.query).join(', ')}`
    }; they go on as before. End the transactions in error.holders, or try again later.`,
  { retryable: true },
)
export const MoveNotEqual: ErrorKind<'move_not_equal', { schema: string; table: string }> = defineError(
  'move_not_equal',
  d =>
    `Table "${d.table}" of schema "${d.schema}" was copied and is not the same on both servers. Nothing was switched. Discard the move
and look for what writes to the target, or for a type that the two servers print differently.`.replace('\n', ' '),
)
