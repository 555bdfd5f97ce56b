/** The errors of moving a store from one server to another. */
import { defineError, type ErrorKind } from '../../core/errors.ts'

export const MoveRefused: ErrorKind<'move_refused', { schema: string; reason: string }> = defineError(
  'move_refused',
  d => `Schema "${d.schema}" cannot be moved: ${d.reason}.`,
)
export const MoveTakenOver: ErrorKind<'move_taken_over', { schema: string }> = defineError(
  'move_taken_over',
  d =>
    `Another process has taken over the move into schema "${d.schema}", or has discarded it, so this process stops. Read the state of the move before you start it again.`,
)
export const MoveHeldUp: ErrorKind<
  'move_held_up',
  { schema: string; timeoutMs: number; holders: readonly { pid: number | null; query: string }[] }
> = defineError(
  'move_held_up',
  d => {
    const holders = d.holders.map(each => each.pid ?? each.query).join(', ')
    const because = d.holders.length === 0 ? '' : ` because of ${holders}`
    return `Writers of schema "${d.schema}" could not be stopped within ${d.timeoutMs} ms${because}. They continue as before. End the transactions in error.holders, or try again later.`
  },
  { retryable: true },
)
export const MoveNotEqual: ErrorKind<'move_not_equal', { schema: string; table: string }> = defineError(
  'move_not_equal',
  d =>
    `Table "${d.table}" of schema "${d.schema}" was copied but differs between the two servers. Nothing was switched. Discard the move, then look for a program that writes to the target, or for a type that the two servers print differently.`,
)
